// Call collectives.

#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rose/dist/cost.h"
#include "rose/dist/tcp_wire.h"

namespace rose::dist {

template <class T>
concept Summable = std::same_as<T, float> || std::same_as<T, double> ||
                   std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>;

enum class Order : std::uint8_t {
  tree,  ///< the canonical sum
  ring   ///< as pieces come around a ring: the same everywhere and every time, with other bits
};

/// Processes that make the same calls in the same order. Errors are those of Wire; a group of one communicates nothing.
class Group {
 public:
  explicit Group(Wire& wire, WireCost cost = {20e-6, 1 / 2e9}) : wire_(&wire), cost_(cost) {}

  int rank() const { return wire_->rank(); }
  int size() const { return wire_->size(); }

  template <Summable T>
  void all_reduce(std::span<T> values, Order order = Order::tree, Site site = Site::here());
  /// Rank r gets piece r of even_pieces(); the other pieces of `values` hold anything afterwards. Returns the piece.
  template <Summable T>
  std::span<T> reduce_scatter(std::span<T> values, Order order = Order::tree,
                              Site site = Site::here());
  /// Piece r of even_pieces() is taken from rank r.
  template <Summable T>
  void all_gather(std::span<T> values, Site site = Site::here());
  template <Summable T>
  void broadcast(std::span<T> values, int root = 0, Site site = Site::here());
  /// Piece r of `values` goes to rank r, and what rank r sent takes its place. The size is a multiple of the ranks'.
  template <Summable T>
  void all_to_all(std::span<T> values, Site site = Site::here());
  /// Everybody's text, by rank.
  std::vector<std::string> all_gather(const std::string& text, Site site = Site::here());
  void barrier(Site site = Site::here());

 private:
  Call call(const char* what, const char* type, std::size_t n, Site site);

  Wire* wire_;
  WireCost cost_;
  std::uint64_t calls_ = 0;
};

}  // namespace rose::dist
