// A law of loss in size and text.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rose::trainer {

/// A finished run: how large, how much text, and the loss on held-out text (nats per token).
struct ScalingRun {
  double parameters = 0.0, tokens = 0.0, loss = 0.0;
};

/// A model and an amount of text.
struct Budget {
  double parameters = 0.0, tokens = 0.0;
};

// Five numbers, and what follows from them.

/// loss = floor + size / parameters^alpha + data / tokens^beta
struct ScalingLaw {
  double floor = 0.0, size = 0.0, data = 0.0;
  double alpha = 0.0, beta = 0.0;

  double loss(double parameters, double tokens) const;
  /// The least loss that `flops` = 6 parameters tokens can buy.
  Budget best(double flops) const;
  /// The best model grows as flops to this power, and the text as flops to one minus it.
  double growth() const { return beta / (alpha + beta); }
};

// Fit a law, and fit it again to resampled runs.

/// Relative errors beyond `huber` count linearly. At least five runs of at least three sizes and amounts of text;
/// throws core::Error (invalid_argument) otherwise.
ScalingLaw fit_scaling_law(std::span<const ScalingRun> runs, double huber = 0.01);

/// Laws of runs drawn with replacement: what else the same experiment might have said. A function of the seed.
std::vector<ScalingLaw> resampled_laws(std::span<const ScalingRun> runs, int resamples,
                                       std::uint64_t seed = 1, double huber = 0.01);

}  // namespace rose::trainer
