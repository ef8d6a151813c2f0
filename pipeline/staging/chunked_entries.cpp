// SPDX-License-Identifier: Apache-2.0
//
// Grants for chunked large messages: who may send what in chunks to whom, and the notes by which ranks tell each other.
// See chunked.h.

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "pipeline/gpu/pinned.h"
#include "pipeline/staging/chunked_peer.h"
#include "pipeline/staging/staging.h"
#include "shim/abi/backend.h"
#include "shim/base/clock.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/report/json.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/pool.h"
#include "shim/runtime/staged.h"
#include "shim/tables/request_overflow.h"
#include "shim/tables/tables.h"

namespace resil::staging {

constinit uint64_t chunk_bytes;
constinit uint32_t chunked_granted, chunked_held;

namespace {

constexpr PrivateTag kNoteTag = tags::kStagingNote[0];
constexpr uint32_t kTagsOfEntry = 64;
static_assert(kMostEntries * kTagsOfEntry == tags::kStagingChunk.count);
constexpr uint32_t kNotes = 8;  ///< receives that are posted for notes
constexpr uint32_t kOfOneKind = 2;  ///< entries for one sender and one size
constexpr uint32_t kMostUnanswered = 64;
constexpr double kLongestAnnouncement = 2;  ///< seconds
constexpr uint64_t kShare = 4;  ///< of the pinned memory, that entries may take: one part in so many

enum class NoteKind : uint32_t {
  kWanted,  ///< messages of `bytes` bytes are sent to you time and again
  kGranted,  ///< that entry is yours
  kRefused,  ///< there is none now
  kFree,  ///< it is free again
  kCannot,  ///< the entry, of the kind peer, cannot be opened here: to be replaced by one of the other kind
  kGone,  ///< its device memory is: to be given up as soon as it is free
};

struct Note {
  NoteKind kind;
  uint32_t number;
  int32_t source;  ///< world rank
  Cut cut;
  uint64_t node;  ///< kWanted: the sender's (chunked_node)
  gpu::IpcHandle handle;  ///< kGranted, of the kind peer
};

struct OutNote {
  OutNote* next;
  uint64_t request;
  Note note;
};

/// A message that could have been cut, had there been a grant.
struct Seen {
  int32_t to;
  uint32_t times;
  uint64_t bytes;
  bool asked;  ///< and no answer so far
};

enum class Usable : uint8_t { kUndecided, kNo, kYes };

constinit Usable usable;
constinit Entry entries[kMostEntries] = {};
constinit Grant* grants;
constinit Seen seen[64] = {};
constinit OutNote* leaving_notes;
memory::Pool<OutNote, &OutNote::next, 64, 65536> note_pool;
memory::Pool<Grant, &Grant::next, 32, 65536> grant_pool;
constinit uint64_t entry_memory;
constinit uint32_t unanswered;  ///< kWanted, without an answer so far
constinit bool finishing;
struct {
  uint64_t sent, sent_bytes, received, received_bytes;
} counts[2];  ///< wire, peer

Note notes[kNotes];
uint64_t note_requests[kNotes];
constinit mailbox::Inbox<Note> inbox;

/// What has left may be used again.
void reap() {
  for (OutNote** place = &leaving_notes; *place != nullptr;) {
    OutNote* out = *place;
    if (!backend->test(&out->request)) {
      place = &out->next;
      continue;
    }
    *place = out->next;
    note_pool.release(out);
  }
}

/// False: no memory, or MPI would not.
bool tell(int32_t to, NoteKind kind, uint32_t number, const Cut& cut, uint64_t node = 0,
          const gpu::IpcHandle& handle = {}) {
  reap();
  OutNote* out = note_pool.allocate();
  if (out == nullptr) return false;
  out->note = {kind, number, runtime.rank, cut, node, handle};
  if (!mailbox::send(&out->note, sizeof(Note), to, kNoteTag, &out->request)) {
    note_pool.release(out);
    return false;
  }
  out->next = leaving_notes;
  leaving_notes = out;
  return true;
}

/// Is a receive pending that nobody looks at, and that a head would fit into?
bool unseen_receives() {
  if (__atomic_load_n(&overflow_in_use, __ATOMIC_RELAXED) != 0) return true;
  for (uint32_t i = 0; i < runtime.request_count; ++i) {
    const ring::Request& r = runtime.requests[i];
    if (r.key != 0 && r.kind == static_cast<uint8_t>(ring::RequestKind::kReceive) && !(r.flags & ring::kPartitioned) &&
        r.bytes >= chunk_bytes / 8 && ((r.flags & ring::kPersistent) || message_find(r.key) == nullptr))
      return true;
  }
  return false;
}

/// Nobody else's: a program cannot know it.
uint64_t random_word() {
  static constinit uint64_t state = 0;
  if (state == 0 && getrandom(&state, sizeof(state), GRND_NONBLOCK) != sizeof(state))
    state = ticks() ^ static_cast<uint64_t>(getpid()) << 40;
  uint64_t z = (state += 0x9e3779b97f4a7c15);  // splitmix64
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

/// 0: none is left, as good as (small chunks have few).
uint64_t choose_head(int32_t from) {
  const uint64_t least = chunk_bytes / 8;
  for (int tries = 0; tries < 64; ++tries)
    if (const uint64_t head = (least + random_word() % least) / kHeadUnit * kHeadUnit;
        chunked_entry(from, head) == nullptr)
      return head;
  return 0;
}

void withdraw(Entry& entry) {
  uint64_t* all[kMostChunks + 1] = {&entry.announcement};
  for (uint32_t i = 0; i < kMostChunks; ++i) all[i + 1] = &entry.requests[i];
  for (uint64_t* request : all)
    if (*request != backend->request_null()) backend->messages->cancel(request);
}

/// Posts everything that the sender may send. False: MPI would not; nothing is posted.
bool post(Entry& entry) {
  entry.state = EntryState::kOpen;
  entry.announced = entry.begun = entry.straight = entry.refused = false;
  entry.arrived = 0;
  entry.message = nullptr;
  entry.announcement = backend->request_null();
  for (uint64_t& request : entry.requests) request = backend->request_null();
  const uint32_t number = chunked_number(entry);
  bool good =
      mailbox::receive(&entry.said, sizeof(entry.said), entry.from, chunked_tag(number, 0), &entry.announcement);
  for (uint32_t i = 0; good && i < entry.cut.chunks; ++i)
    good = mailbox::receive(entry.cut.peer != 0 ? static_cast<void*>(&entry.word) : entry.memory + entry.cut.begin(i),
                            entry.cut.wire(i), entry.from, chunked_tag(number, i + 1), &entry.requests[i]);
  if (!good) withdraw(entry);
  return good;
}

/// Takes everything from the sender; `shared`: it may have opened the entry's device memory.
void release(Entry& entry, bool shared) {
  withdraw(entry);
  if (entry.cut.peer != 0) {
    chunked_peer_give(entry, shared);
  } else {
    gpu::pinned_release(entry.memory);
    entry_memory -= entry.cut.bytes;
  }
  entry.memory = nullptr;
  entry.state = EntryState::kNone;
}

/// Its sender has, since an ordinary message has the size of its heads: frees it.
bool given_up(Entry& entry) {
  if (!chunked_announced(entry) || entry.said.total != entry.cut.head) return false;
  release(entry, true);
  return true;
}

Entry* free_entry(int32_t from, uint64_t bytes) {
  Entry* found = nullptr;
  uint32_t of_kind = 0;
  for (Entry& entry : entries) {
    if (entry.state == EntryState::kNone || (entry.state == EntryState::kOpen && given_up(entry)))
      found = found != nullptr ? found : &entry;
    else of_kind += entry.from == from && entry.cut.bytes == bytes;
  }
  return of_kind < kOfOneKind ? found : nullptr;
}

/// Memory for it, and how it is cut. False: there is none.
bool take_memory(Entry& entry, int32_t from, uint64_t bytes, uint64_t node, gpu::Device& device,
                 gpu::IpcHandle* handle) {
  const uint64_t head = choose_head(from);
  if (head == 0) return false;
  const uint64_t rest = bytes - (head - sizeof(Secret));
  entry.from = from;
  entry.device = &device;
  entry.memory = entry.far = nullptr;
  entry.room = 0;
  entry.emptied = 0;
  entry.lost = false;
  if (chunked_peer_wanted(from, node, bytes, device)) {
    entry.cut = {bytes, head, rest, 1, 1, {random_word(), random_word()}};
    if (chunked_peer_take(entry, handle)) return true;
  }
  if (bytes > mode.memory / kShare - entry_memory) return false;
  constexpr uint64_t kPage = 4096;
  const uint64_t least = ((rest + kMostChunks - 1) / kMostChunks + kPage - 1) / kPage * kPage;
  const uint64_t chunk = least > chunk_bytes ? least : chunk_bytes;
  const auto chunks = static_cast<uint32_t>((rest + chunk - 1) / chunk);
  entry.cut = {bytes, head, chunk, chunks, 0, {random_word(), random_word()}};
  entry.memory = static_cast<char*>(gpu::pinned_acquire(device, bytes));
  if (entry.memory == nullptr) return false;
  entry.room = bytes;
  entry_memory += bytes;
  return true;
}

/// False: it cannot be, now.
bool grant(int32_t from, uint64_t bytes, uint64_t node) {
  gpu::Device* device = last_device();
  Entry* entry = free_entry(from, bytes);
  gpu::IpcHandle handle = {};
  if (finishing || usable != Usable::kYes || device == nullptr || entry == nullptr || bytes < 2 * chunk_bytes ||
      (chunked_granted == 0 && unseen_receives()) || !take_memory(*entry, from, bytes, node, *device, &handle))
    return false;
  if (!post(*entry) || !tell(from, NoteKind::kGranted, chunked_number(*entry), entry->cut, 0, handle)) {
    release(*entry, false);
    return false;
  }
  ++chunked_granted;
  return true;
}

/// Its sender has never written there.
void replace(uint32_t number, int32_t from) {
  Entry& entry = entries[number];
  chunked_peer_refused(from);
  const uint64_t bytes = entry.cut.bytes;
  release(entry, false);
  if (!grant(from, bytes, 0)) tell(from, NoteKind::kRefused, 0, entry.cut);
}

Seen& seen_place(int32_t to, uint64_t bytes) {
  return seen[(static_cast<uint64_t>(to) * 31 + bytes) * 0x9e3779b97f4a7c15 >> 58];
}

void answered(int32_t from, uint64_t bytes) {
  --unanswered;
  if (Seen& place = seen_place(from, bytes); place.to == from && place.bytes == bytes) place.asked = false;
}

/// Null: it has been given up.
Grant* grant_of(int32_t from, uint32_t number) {
  Grant* held = grants;
  while (held != nullptr && (held->to != from || held->number != number)) held = held->next;
  return held;
}

void take_note(const Note& note, int32_t from) {
  switch (note.kind) {
    case NoteKind::kWanted:
      if (!grant(from, note.cut.bytes, note.node)) tell(from, NoteKind::kRefused, 0, note.cut);
      return;
    case NoteKind::kRefused: return answered(from, note.cut.bytes);
    case NoteKind::kGranted:
      answered(from, note.cut.bytes);
      if (Grant* held = grant_pool.allocate(); held != nullptr) {
        *held = {grants, note.cut, from,  note.number, true,    true,   false,
                 false,  false,    false, note.handle, nullptr, nullptr};
        grants = held;
        ++chunked_held;
        if (chunked_size_sent(held->cut.head))  // it may be probed yet
          chunked_give_up(held);
      }
      return;
    case NoteKind::kFree:
      if (Grant* held = grant_of(from, note.number); held != nullptr) {
        held->returned = true;
        chunked_loosen(held);
      }
      return;
    case NoteKind::kCannot: return replace(note.number, from);
    case NoteKind::kGone:
      if (Grant* held = grant_of(from, note.number); held != nullptr) {
        held->spoiled = true;
        chunked_loosen(held);
      }
      return;
  }
}

/// The next note, if it is here.
bool take_one() {
  bool failed = false;
  if (!inbox.is_open() || !inbox.has_come(&failed)) return false;
  const Note note = inbox.message();
  inbox.again();
  take_note(note, note.source);
  return inbox.is_open();
}

}  // namespace

bool chunked_usable() {
  if (usable != Usable::kUndecided) [[likely]]
    return usable == Usable::kYes;
  const bool never = chunk_bytes == 0 || several_threads() || checking || job_survives() || staged_faults != nullptr ||
                     config_has("RESIL_MODE", "record") || config_has("RESIL_MODE", "verify");
  if (!never && !mailbox::is_open())  // MPI was initialised out of sight: perhaps later
    return false;
  usable = !never && inbox.open(kNoteTag, notes, note_requests, kNotes) ? Usable::kYes : Usable::kNo;
  return usable == Usable::kYes;
}

int chunked_world_rank(Thread& thread, uint64_t comm, int32_t peer) {
  CommInfo* info = peer >= 0 ? comm_lookup(thread, comm) : nullptr;
  return info != nullptr ? comm_world_rank(*info, peer) : -1;
}

Grant* chunked_grant(Thread&, int32_t to, uint64_t bytes) {
  for (Grant* held = grants; held != nullptr; held = held->next)
    if (held->to == to && held->cut.bytes == bytes && held->free) return held;
  Seen& place = seen_place(to, bytes);
  if (place.to != to || place.bytes != bytes) place = {to, 0, bytes, false};
  ++place.times;
  // Again from time to time: it may have been out of memory, or one may not be enough. A rank without device buffers
  // answers in MPI_Finalize, and not much is to be left with MPI until then.
  if ((place.times == 2 || place.times == 16 || place.times % 256 == 0) && !place.asked &&
      unanswered < kMostUnanswered) {
    place.asked = tell(to, NoteKind::kWanted, 0, {bytes, 0, 0, 0, 0, {}}, chunked_node());
    unanswered += place.asked;
  }
  return nullptr;
}

Grant* chunked_grant_with_head(int32_t to, uint64_t head) {
  for (Grant* held = grants; held != nullptr; held = held->next)
    if (held->to == to && held->cut.head == head) return held;
  return nullptr;
}

void chunked_loosen(Grant* grant) {
  grant->free = grant->returned && !grant->used;
  if (grant->free && grant->spoiled) chunked_give_up(grant);
}

void chunked_forget(Grant* grant) {
  Grant** place = &grants;
  while (*place != grant) place = &(*place)->next;
  *place = grant->next;
  grant_pool.release(grant);
  --chunked_held;
}

void chunked_devices_changed() {
  for (Entry& entry : entries)
    if (entry.state != EntryState::kNone && entry.cut.peer != 0 && !entry.lost && !gpu::alive(*entry.device)) {
      entry.lost = true;
      tell(entry.from, NoteKind::kGone, chunked_number(entry), entry.cut);
    }
}

void chunked_refuse(Grant* grant) {
  if (grant->shared) return chunked_give_up(grant);
  unanswered += tell(grant->to, NoteKind::kCannot, grant->number, grant->cut);
  chunked_forget(grant);
}

Entry* chunked_entry(int32_t from, uint64_t head) {
  for (Entry& entry : entries)
    if (entry.state != EntryState::kNone && entry.from == from && entry.cut.head == head) return &entry;
  return nullptr;
}

bool chunked_announced(Entry& entry) {
  return entry.announced || (entry.announced = backend->test(&entry.announcement));
}

bool chunked_is_head(Thread& thread, Entry& entry, uint64_t comm, int32_t tag) {
  if (entry.state != EntryState::kOpen) return false;
  // One of the two was sent before the message, unless that is an ordinary one which was sent before its sender knew of
  // the entry: then there is nothing to come.
  const double deadline = monotonic_seconds() + kLongestAnnouncement;
  wait_while_working(thread, [&] { return chunked_announced(entry) || monotonic_seconds() > deadline; });
  return entry.announced && !given_up(entry) && entry.said.comm == comm && entry.said.tag == tag;
}

void chunked_regrant(Thread&, Entry& entry) {
  if (post(entry)) tell(entry.from, NoteKind::kFree, chunked_number(entry), entry.cut);
}

PrivateTag chunked_tag(uint32_t number, uint32_t what) { return tags::kStagingChunk[number * kTagsOfEntry + what]; }

Entry* chunked_entry_numbered(uint32_t number) { return &entries[number]; }

uint32_t chunked_number(const Entry& entry) { return static_cast<uint32_t>(&entry - entries); }

void chunked_notes(Thread&) {
  while (take_one()) {}
}

void chunked_end(Thread& thread) {
  if (chunk_bytes == 0 || !mailbox::is_open()) return;
  finishing = true;
  // A rank that has taken no part may have been asked.
  if (!inbox.is_open() && !inbox.open(kNoteTag, notes, note_requests, 1)) return;
  // What is matched has been received. What is not never will be: its sender need not wait.
  for (Entry& entry : entries)
    if (entry.state == EntryState::kOpen && !given_up(entry) && entry.announced)
      tell(entry.from, NoteKind::kFree, chunked_number(entry), entry.cut);
  const double deadline = monotonic_seconds() + config_real("RESIL_DRAIN_SECONDS");
  auto busy = [] {
    for (const Grant* held = grants; held != nullptr; held = held->next)
      if (!held->returned) return true;
    return unanswered != 0;
  };
  do {
    advance(thread);
    chunked_notes(thread);
  } while (busy() && monotonic_seconds() < deadline);
  inbox.close();
  for (Entry& entry : entries)
    if (entry.state != EntryState::kNone) withdraw(entry);
  for (Grant* held = grants; held != nullptr; held = held->next)
    if (held->free) chunked_peer_close(*held);
  usable = Usable::kNo;
  chunked_granted = 0;
  reap();
}

void chunked_count_sent(const Cut& cut) { ++counts[cut.peer].sent, counts[cut.peer].sent_bytes += cut.bytes; }
void chunked_count_received(const Cut& cut) {
  ++counts[cut.peer].received, counts[cut.peer].received_bytes += cut.bytes;
}

void chunked_report(JsonWriter& json) {
  for (uint32_t peer = 0; peer < 2; ++peer) {
    uint32_t held = 0;
    for (const Grant* each = grants; each != nullptr; each = each->next) held += each->cut.peer == peer;
    json.begin_object(peer != 0 ? "peer_copies" : "chunked");
    json.integer("sent", static_cast<int64_t>(counts[peer].sent));
    json.integer("sent_bytes", static_cast<int64_t>(counts[peer].sent_bytes));
    json.integer("received", static_cast<int64_t>(counts[peer].received));
    json.integer("received_bytes", static_cast<int64_t>(counts[peer].received_bytes));
    json.integer("granted", held);
    json.end_object();
  }
}

}  // namespace resil::staging
