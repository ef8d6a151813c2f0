// SPDX-License-Identifier: Apache-2.0
//
// Outgoing messages of the ledger: pages of 4 KiB from a bounded pool, and those that MPI has not sent yet.

#include <sys/mman.h>

#include <cstring>

#include "checksum/ledger/transport_internal.h"
#include "shim/abi/backend.h"
#include "shim/call/attach.h"
#include "shim/call/runtime.h"

namespace resil::ledger {

uint64_t old_ticks = 25'000'000;  // until the clock is known

namespace {

constexpr uint32_t kPagesAtOnce = 64;

Page* free_pages;
uint32_t pages_made;
Page *flight_first, *flight_last;  // given to MPI, not complete

Page* first_in_flight() {
  Guard guard;
  return flight_first;
}

/// With the token. Of a page whose message failed, nobody knows who still reads it: it is never used again.
bool leave_flight(Page* page) {
  bool failed = false;
  if (!request_over(&page->request, &failed)) return false;
  {
    Guard guard;
    flight_first = page->next;
    if (flight_first == nullptr) flight_last = nullptr;
  }
  if (!failed) give_back(page);
  return true;
}

}  // namespace

Page* take_page() {
  if (free_pages == nullptr && pages_made < kMaxPages) {
    void* memory = mmap(nullptr, kPagesAtOnce * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    pages_made += kPagesAtOnce;
    for (uint32_t i = 0; i < kPagesAtOnce; ++i) {
      auto* page = reinterpret_cast<Page*>(static_cast<char*>(memory) + i * 4096);
      page->next = free_pages;
      __atomic_store_n(&free_pages, page, __ATOMIC_RELAXED);
    }
  }
  Page* page = free_pages;  // stored as one word: reap() looks without the lock
  if (page != nullptr) {
    __atomic_store_n(&free_pages, page->next, __ATOMIC_RELAXED);
    page->next = nullptr;
    page->header = {};
    page->header.source = runtime.rank;
  }
  return page;
}

void give_back(Page* page) {
  Guard guard;
  page->next = free_pages;
  __atomic_store_n(&free_pages, page, __ATOMIC_RELAXED);
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
  if (!backend->send(private_comm(), &header, bytes, to.world_rank, kTag, &page->request)) {
    {
      Guard guard;
      to.in_pages = to.no_return = true;
    }
    give_back(page);  // its records are lost; the gap in the ordinals tells the other side
    return;
  }
  if (backend->test(&page->request)) {
    give_back(page);
    return;
  }
  Guard guard;
  page->next = nullptr;
  if (flight_last != nullptr) flight_last->next = page;
  else flight_first = page;
  flight_last = page;
}

void reap(bool now) {
  static Patience patience;  // the token's holder is the only one here
  const uint64_t begin = ticks();
  if (!now && __atomic_load_n(&free_pages, __ATOMIC_RELAXED) != nullptr && !patience.is_due(begin)) return;
  Page* page = first_in_flight();
  while (page != nullptr && leave_flight(page)) page = first_in_flight();
  if (page != nullptr) patience.in_vain(begin, ticks(), old_ticks);
}

bool anything_in_flight() { return first_in_flight() != nullptr; }

}  // namespace resil::ledger
