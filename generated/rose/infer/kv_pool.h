// Own every page of keys and values.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "rose/kernels/kv_cache.h"

namespace rose::infer {

enum class PageState : std::uint8_t { free, cached, referenced, in_flight, scratch };

/// How many pages are in each state. The sum is the pool's size, always.
struct PageCounts {
  std::int64_t free = 0, cached = 0, referenced = 0, in_flight = 0, scratch = 0;
  std::int64_t total() const { return free + cached + referenced + in_flight + scratch; }
};

/// The pages' owners, not their contents: those are where a runner put them. One thread uses it.
class KvPool {
 public:
  explicit KvPool(std::int64_t pages);  ///< page 0 is scratch

  std::int64_t usable() const { return static_cast<std::int64_t>(pages_.size()) - 1; }
  /// Pages that take() can hand out now: free ones, then cached ones.
  std::int64_t available() const { return counts_.free + counts_.cached; }

  /// A page for one owner. Takes the longest cached page, and reports it to on_evict, when none is free.
  /// Throws core::Error (resource_exhausted) when there is none at all: plan before you take.
  std::int32_t take();
  void share(std::int32_t page);    ///< one more owner, of a page that is not free
  void release(std::int32_t page);  ///< one owner less
  /// Whether the contents of a page can be found again by its tokens. A page so marked is never written.
  void mark(std::int32_t page);
  void unmark(std::int32_t page);

  void launch() { ++launched_; }  ///< a step begins that may touch every page referenced now
  void complete();                ///< the oldest step that is not over is over

  PageState state(std::int32_t page) const { return at(page).state; }
  std::int32_t owners(std::int32_t page) const { return at(page).owners; }
  bool marked(std::int32_t page) const { return at(page).marked; }
  /// May the page's owner write into it? Only if it is its only owner, and nobody can find the page.
  bool writable(std::int32_t page) const { return at(page).owners == 1 && !at(page).marked; }
  const PageCounts& counts() const { return counts_; }
  void check()
      const;  ///< counts everything again; throws core::Error (internal) if the books are wrong

  std::function<void(std::int32_t page)> on_evict;  ///< the page is about to lose its contents

 private:
  // What is known of each page.
  struct Page {
    std::int32_t owners = 0;
    PageState state = PageState::free;
    bool marked = false;
    std::int32_t before = 0, after = 0;  ///< neighbours among the cached; 0 (scratch) ends the list
    std::uint64_t released = 0;          ///< steps launched when the last owner let go
  };
  struct Departure {
    std::uint64_t step = 0;
    std::int32_t page = 0;
  };

  const Page& at(std::int32_t page) const { return pages_[static_cast<std::size_t>(page)]; }
  Page& at(std::int32_t page) { return pages_[static_cast<std::size_t>(page)]; }
  void change(Page& page, PageState to);  ///< moves it from one count to another
  std::int64_t& count_of(PageState state);
  void settle(std::int32_t page);  ///< of a page without owners and steps: cached or free
  void link(std::int32_t page);    ///< as the newest of the cached
  void unlink(std::int32_t page);

  std::vector<Page> pages_;
  std::vector<std::int32_t> free_;  ///< a stack: the page used last is likeliest to be near
  std::int32_t oldest_ = 0, newest_ = 0;
  std::deque<Departure> departures_;  ///< pages in flight, in the order of release
  std::uint64_t launched_ = 0, completed_ = 0;
  PageCounts counts_;
};

// Make positions of a sequence writable.

/// What a sequence must take before it can write positions [first, first + count), first at most the positions its pages hold.
struct PageNeed {
  std::int64_t fresh = 0;  ///< pages to take, the copy's target included
  bool copy = false;       ///< the first page written is shared or can be found
};
PageNeed page_need(const KvPool& pool, std::span<const std::int32_t> pages, std::int64_t first,
                   std::int64_t count, int page_size);

/// Takes them: afterwards every page from position `first` on is the sequence's own. A copy to be made before the step is
/// appended to `copies`. Call launch() first: the page copied from has to outlive the step.
void reserve_pages(KvPool& pool, std::vector<std::int32_t>& pages, std::int64_t first,
                   std::int64_t count, int page_size, std::vector<kernels::KvPageCopy>& copies);

/// Releases all pages, the last one first: the beginning of a text is what others are likeliest to share, so it should be
/// evicted last.
void release_pages(KvPool& pool, std::vector<std::int32_t>& pages);

}  // namespace rose::infer
