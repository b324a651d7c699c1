// Draw the curve.

#pragma once

#include <string>
#include <utility>
#include <vector>

namespace rose::trainer {

using Series = std::vector<std::pair<double, double>>;  ///< (step, loss), steps ascending

/// An SVG picture with title and description; points that are not finite are left out.
std::string plot_losses(const std::string& title, const Series& training, const Series& validation);

/// About `count` round numbers, 1, 2 or 5 times a power of ten apart, that lie within [low, high].
std::vector<double> ticks(double low, double high, int count);

}  // namespace rose::trainer
