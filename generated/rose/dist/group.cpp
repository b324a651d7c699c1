// Call collectives.

#include "rose/dist/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "rose/dist/collective_cost.h"
#include "rose/dist/collectives.h"

namespace rose::dist {

namespace {

template <class T>
constexpr const char* type_name() {
  if constexpr (std::same_as<T, float>) return "f32";
  if constexpr (std::same_as<T, double>) return "f64";
  return std::same_as<T, std::int32_t> ? "i32" : "i64";
}

std::vector<std::size_t> scaled(std::vector<std::size_t> offsets, std::size_t by) {
  for (std::size_t& offset : offsets) offset *= by;
  return offsets;
}

}  // namespace

Call Group::call(const char* what, const char* type, std::size_t n, Site site) {
  return {++calls_, fmt::format("{} {}[{}] at {}", what, type, n, place(site))};
}

// Sum, all of it or a piece.
template <Summable T>
std::span<T> Group::reduce_scatter(std::span<T> values, Order order, Site site) {
  const Call c = call("reduce_scatter", type_name<T>(), values.size(), site);
  const std::vector<std::size_t> pieces = even_pieces(values.size(), size());
  order == Order::tree ? reduce_scatter_direct(*wire_, c, values, pieces)
                       : reduce_scatter_ring(*wire_, c, values, pieces);
  const auto r = static_cast<std::size_t>(rank());
  return values.subspan(pieces[r], pieces[r + 1] - pieces[r]);
}

template <Summable T>
void Group::all_reduce(std::span<T> values, Order order, Site site) {
  const Call c = call("all_reduce", type_name<T>(), values.size(), site);
  if (size() == 1) return;
  const auto bytes = static_cast<double>(values.size_bytes());
  const double whole = collective_cost(Algorithm::doubling, cost_, size(), bytes),
               pieces = 2 * collective_cost(Algorithm::direct, cost_, size(), bytes);
  const bool power = std::has_single_bit(static_cast<unsigned>(size()));
  if (order == Order::tree && whole < pieces) {
    if (power) return all_reduce_doubling(*wire_, c, values);
    reduce_tree(*wire_, c, values);
    return broadcast_tree(*wire_, c, std::as_writable_bytes(values), 0);
  }
  const std::vector<std::size_t> offsets = even_pieces(values.size(), size());
  order == Order::tree ? reduce_scatter_direct(*wire_, c, values, offsets)
                       : reduce_scatter_ring(*wire_, c, values, offsets);
  all_gather_ring(*wire_, c, std::as_writable_bytes(values), scaled(offsets, sizeof(T)));
}

// Spread, exchange, wait.
template <Summable T>
void Group::all_gather(std::span<T> values, Site site) {
  const Call c = call("all_gather", type_name<T>(), values.size(), site);
  all_gather_ring(*wire_, c, std::as_writable_bytes(values),
                  scaled(even_pieces(values.size(), size()), sizeof(T)));
}

template <Summable T>
void Group::broadcast(std::span<T> values, int root, Site site) {
  const Call c = call("broadcast", type_name<T>(), values.size(), site);
  broadcast_tree(*wire_, c, std::as_writable_bytes(values), root);
}

template <Summable T>
void Group::all_to_all(std::span<T> values, Site site) {
  const Call c = call("all_to_all", type_name<T>(), values.size(), site);
  if (values.size() % static_cast<std::size_t>(size()) != 0)
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("{} elements for {} ranks", values.size(), size()))
        .in(c.what);
  const std::vector<T> out(values.begin(), values.end());
  const std::vector<std::size_t> offsets = scaled(even_pieces(values.size(), size()), sizeof(T));
  all_to_all_direct(*wire_, c, std::as_bytes(std::span(out)), offsets,
                    std::as_writable_bytes(values), offsets);
}

std::vector<std::string> Group::all_gather(const std::string& text, Site site) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(size()));
  sizes[static_cast<std::size_t>(rank())] = static_cast<std::int64_t>(text.size());
  all_gather(std::span(sizes), site);
  std::vector<std::size_t> offsets{0};
  offsets.reserve(sizes.size() + 1);
  for (const std::int64_t n : sizes)
    offsets.push_back(offsets.back() + static_cast<std::size_t>(n));
  std::string all(offsets.back(), ' ');
  std::ranges::copy(
      text, all.begin() + static_cast<std::ptrdiff_t>(offsets[static_cast<std::size_t>(rank())]));
  all_gather_ring(*wire_, call("all_gather", "text", 0, site),
                  std::as_writable_bytes(std::span(all)), offsets);
  std::vector<std::string> out;
  out.reserve(sizes.size());
  for (std::size_t r = 0; r + 1 < offsets.size(); ++r)
    out.push_back(all.substr(offsets[r], offsets[r + 1] - offsets[r]));
  return out;
}

void Group::barrier(Site site) {
  std::vector<std::int64_t> nothing(static_cast<std::size_t>(size()));
  const Call c = call("barrier", type_name<std::int64_t>(), 0, site);
  all_gather_ring(*wire_, c, std::as_writable_bytes(std::span(nothing)),
                  scaled(even_pieces(nothing.size(), size()), sizeof(std::int64_t)));
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define ROSE_GROUP(T)                                                     \
  template void Group::all_reduce(std::span<T>, Order, Site);             \
  template std::span<T> Group::reduce_scatter(std::span<T>, Order, Site); \
  template void Group::all_gather(std::span<T>, Site);                    \
  template void Group::broadcast(std::span<T>, int, Site);                \
  template void Group::all_to_all(std::span<T>, Site)
ROSE_GROUP(float);
ROSE_GROUP(double);
ROSE_GROUP(std::int32_t);
ROSE_GROUP(std::int64_t);
#undef ROSE_GROUP
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace rose::dist
