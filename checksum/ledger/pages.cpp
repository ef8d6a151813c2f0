// SPDX-License-Identifier: Apache-2.0
//
// Outgoing messages of the ledger: pages of 4 KiB from a bounded pool, and those that MPI has not sent yet.

#include <cstring>

#include "checksum/ledger/transport_internal.h"
#include "shim/call/runtime.h"
#include "shim/runtime/pool.h"

namespace resil::ledger {

uint64_t old_ticks = 25'000'000;  // until the clock is known

namespace {

memory::Pool<Page, &Page::next, 64, kMaxPages> pages;
Page *flight_first, *flight_last;  // given to MPI, not complete

Page* first_in_flight() {
  Guard guard;
  return flight_first;
}

/// With the token. Of a page whose message failed, nobody knows who still reads it: it is never used again.
bool leave_flight(Page* page) {
  bool failed = false;
  if (!mailbox::is_over(&page->request, &failed)) return false;
  {
    Guard guard;
    flight_first = page->next;
    if (flight_first == nullptr) flight_last = nullptr;
  }
  if (!failed) page_release(page);
  return true;
}

}  // namespace

Page* page_allocate() {
  Page* page = pages.allocate();
  if (page != nullptr) {
    page->next = nullptr;
    page->header = {};
    page->header.source = runtime.rank;
  }
  return page;
}

void page_release(Page* page) {
  Guard guard;
  pages.release(page);
}

void launch(Page* page, Peer& to) {
  MessageHeader& header = page->header;
  size_t bytes = sizeof(header) + header.bytes;
  if (!to.host_told) {
    to.host_told = true;
    header.has_host = 1;
    memcpy(page->payload + header.bytes, runtime.host, kHostBytes);  // header.bytes <= kMessageBytes, host follows
    bytes += kHostBytes;
  }
  if (!mailbox::send(&header, bytes, to.world_rank, kTag, &page->request)) {
    {
      Guard guard;
      to.in_pages = to.no_return = true;
    }
    page_release(page);  // its records are lost; the gap in the ordinals tells the other side
    return;
  }
  if (backend->test(&page->request)) {
    page_release(page);
    return;
  }
  Guard guard;
  page->next = nullptr;
  if (flight_last != nullptr) flight_last->next = page;
  else flight_first = page;
  flight_last = page;
}

void reap(bool now) {
  static Backoff backoff;  // the token's holder is the only one here
  const uint64_t begin = ticks();
  if (!now && pages.has_ready() && !backoff.is_due(begin)) return;
  Page* page = first_in_flight();
  while (page != nullptr && leave_flight(page)) page = first_in_flight();
  if (page != nullptr) backoff.in_vain(begin, ticks(), old_ticks);
}

bool anything_in_flight() { return first_in_flight() != nullptr; }

}  // namespace resil::ledger
