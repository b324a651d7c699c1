// Own every page of keys and values.

#include "rose/infer/kv_pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "rose/core/error.h"

namespace rose::infer {
namespace {

[[noreturn]] void broken(std::string what) {
  throw core::Error(core::Code::internal, std::move(what)).in("KV pool");
}

}  // namespace

// Keep the counts and the list.
KvPool::KvPool(std::int64_t pages)
    : pages_(static_cast<std::size_t>(std::max<std::int64_t>(pages, 1))) {
  pages_[0].state = PageState::scratch;
  counts_.scratch = 1;
  counts_.free = usable();
  free_.reserve(pages_.size());
  for (auto page = static_cast<std::int32_t>(usable()); page > 0; --page) free_.push_back(page);
}

std::int64_t& KvPool::count_of(PageState state) {
  switch (state) {
    case PageState::free: return counts_.free;
    case PageState::cached: return counts_.cached;
    case PageState::referenced: return counts_.referenced;
    case PageState::in_flight: return counts_.in_flight;
    case PageState::scratch: break;
  }
  return counts_.scratch;
}

void KvPool::change(Page& page, PageState to) {
  --count_of(page.state);
  ++count_of(to);
  page.state = to;
}

void KvPool::link(std::int32_t page) {
  at(page).before = newest_;
  at(page).after = 0;
  (newest_ == 0 ? oldest_ : at(newest_).after) = page;
  newest_ = page;
}

void KvPool::unlink(std::int32_t page) {
  const Page& p = at(page);
  (p.before == 0 ? oldest_ : at(p.before).after) = p.after;
  (p.after == 0 ? newest_ : at(p.after).before) = p.before;
}

// Hand out a page, or share one.
std::int32_t KvPool::take() {
  std::int32_t page = 0;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else if (oldest_ != 0) {
    page = oldest_;
    unlink(page);
    if (on_evict) on_evict(page);
    at(page).marked = false;
  } else {
    throw core::Error(core::Code::resource_exhausted, "no page is free").in("KV pool");
  }
  change(at(page), PageState::referenced);
  at(page).owners = 1;
  return page;
}

void KvPool::share(std::int32_t page) {
  Page& p = at(page);
  if (p.state == PageState::free || p.state == PageState::scratch)
    broken(fmt::format("page {} is shared, and nobody has it", page));
  if (p.state == PageState::cached) unlink(page);
  if (p.state != PageState::referenced) change(p, PageState::referenced);
  ++p.owners;  // a page in flight comes back, and its departure no longer counts
}

// Let a page go, at once or when the steps are over.
void KvPool::settle(std::int32_t page) {
  Page& p = at(page);
  if (p.marked) {
    link(page);
    change(p, PageState::cached);
  } else {
    free_.push_back(page);
    change(p, PageState::free);
  }
}

void KvPool::release(std::int32_t page) {
  Page& p = at(page);
  if (p.state != PageState::referenced) broken(fmt::format("page {} is released twice", page));
  if (--p.owners > 0) return;
  if (launched_ == completed_) return settle(page);
  change(p, PageState::in_flight);
  p.released = launched_;
  departures_.push_back({launched_, page});
}

void KvPool::complete() {
  if (completed_ == launched_) broken("a step ends that never began");
  ++completed_;
  while (!departures_.empty() && departures_.front().step <= completed_) {
    const Departure d = departures_.front();
    departures_.pop_front();
    if (at(d.page).state == PageState::in_flight && at(d.page).released == d.step) settle(d.page);
  }
}

void KvPool::mark(std::int32_t page) {
  if (at(page).state != PageState::referenced)
    broken(fmt::format("page {} has no owner to publish it", page));
  at(page).marked = true;
}

void KvPool::unmark(std::int32_t page) {
  at(page).marked = false;
  if (at(page).state != PageState::cached) return;
  unlink(page);
  change(at(page), PageState::in_flight);
  settle(page);
}

// Audit the books.
void KvPool::check() const {
  PageCounts seen;
  for (const Page& p : pages_) {
    const bool owned = p.owners > 0;
    if (owned != (p.state == PageState::referenced)) broken("owners and states disagree");
    switch (p.state) {
      case PageState::free: ++seen.free; break;
      case PageState::cached: ++seen.cached; break;
      case PageState::referenced: ++seen.referenced; break;
      case PageState::in_flight: ++seen.in_flight; break;
      case PageState::scratch: ++seen.scratch; break;
    }
  }
  std::int64_t listed = 0;
  for (std::int32_t page = oldest_; page != 0; page = at(page).after, ++listed) {
    if (at(page).state != PageState::cached || !at(page).marked)
      broken(fmt::format("page {} is listed as cached, and is not", page));
  }
  const auto stacked = static_cast<std::int64_t>(free_.size());
  if (seen.free != counts_.free || seen.cached != counts_.cached || seen.scratch != 1 ||
      seen.referenced != counts_.referenced || seen.in_flight != counts_.in_flight ||
      listed != seen.cached || stacked != seen.free || counts_.total() != usable() + 1) {
    broken(fmt::format("{} pages: {} free, {} cached, {} referenced, {} in flight", usable() + 1,
                       seen.free, seen.cached, seen.referenced, seen.in_flight));
  }
}

// Count what a write needs, then take it.
PageNeed page_need(const KvPool& pool, std::span<const std::int32_t> pages, std::int64_t first,
                   std::int64_t count, int page_size) {
  PageNeed need;
  if (count == 0) return need;
  const auto held = static_cast<std::int64_t>(pages.size());
  const std::int64_t begin = first / page_size, end = (first + count - 1) / page_size + 1;
  if (begin < held) need.copy = !pool.writable(pages[static_cast<std::size_t>(begin)]);
  need.fresh = std::max<std::int64_t>(end - held, 0) + (need.copy ? 1 : 0);
  return need;
}

void reserve_pages(KvPool& pool, std::vector<std::int32_t>& pages, std::int64_t first,
                   std::int64_t count, int page_size, std::vector<kernels::KvPageCopy>& copies) {
  const PageNeed need = page_need(pool, pages, first, count, page_size);
  if (need.copy) {
    std::int32_t& page = pages[static_cast<std::size_t>(first / page_size)];
    const std::int32_t own = pool.take();
    copies.push_back({page, own});
    pool.release(page);
    page = own;
  }
  for (std::int64_t i = need.copy ? 1 : 0; i < need.fresh; ++i) pages.push_back(pool.take());
}

void release_pages(KvPool& pool, std::vector<std::int32_t>& pages) {
  while (!pages.empty()) {
    pool.release(pages.back());
    pages.pop_back();
  }
}

}  // namespace rose::infer
