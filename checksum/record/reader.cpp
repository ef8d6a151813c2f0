// SPDX-License-Identifier: Apache-2.0
//
// Opening a recording: is it one, is it whole, is it of this program? And which stream is whose.
#include "checksum/record/reader.h"

#include <stdio.h>
#include <string.h>

#include "checksum/record/reader_internal.h"
#include "shim/base/hash.h"
#include "shim/runtime/memory.h"

namespace resil::record {

namespace {

bool fail(Problem* problem, ProblemKind kind) {
  problem->kind = kind;
  return false;
}

/// By file name: the program may have moved.
uint64_t hash_of(const char* object, uint64_t offset) {
  const char* slash = strrchr(object, '/');
  return hash_combine(hash_text(slash != nullptr ? slash + 1 : object), offset);
}

bool is_of(const Identity& theirs, const Identity& mine, const char* path, Problem* problem) {
  char* text = problem->text;
  const size_t bytes = sizeof(problem->text);
  if (theirs.world_size != mine.world_size) {
    snprintf(text, bytes, "%.600s is a recording of %d ranks, this job has %d", path, theirs.world_size,
             mine.world_size);
    return fail(problem, ProblemKind::kOtherSize);
  }
  if (theirs.rank != mine.rank) {
    snprintf(text, bytes, "%.600s is the recording of rank %d, not of rank %d", path, theirs.rank, mine.rank);
    return fail(problem, ProblemKind::kOtherRank);
  }
  if (strcmp(theirs.build, mine.build) != 0) {
    snprintf(text, bytes, "%.400s is a recording of another program: of %.300s (build %s), this is %.300s (build %s)",
             path, theirs.program, theirs.build, mine.program, mine.build);
    return fail(problem, ProblemKind::kOtherProgram);
  }
  if (strcmp(theirs.reduce, mine.reduce) != 0) {
    snprintf(text, bytes,
             "%.600s was recorded with RESIL_REDUCE=%s, this job has RESIL_REDUCE=%s: reductions differ in bits", path,
             theirs.reduce, mine.reduce);
    return fail(problem, ProblemKind::kOtherReduce);
  }
  return true;
}

/// Fills `text` with "recorded with X, this is Y; ..." for what is allowed to differ.
void compare(const Identity& theirs, const Identity& mine, char* text, size_t bytes) {
  text[0] = 0;
  size_t used = 0;
  auto add = [&](const char* what, const char* then, const char* now) {
    if (strcmp(then, now) == 0) return;
    const int length = snprintf(text + used, bytes - used, "%srecorded with %s%.150s, this is %.150s",
                                used != 0 ? "; " : "", what, then, now);
    used = length > 0 && used + static_cast<size_t>(length) < bytes ? used + static_cast<size_t>(length) : bytes - 1;
  };
  add("", theirs.mpi, mine.mpi);
  add("the program at ", theirs.program, mine.program);
  add("resil ", theirs.resil_version, mine.resil_version);
  if (theirs.thread_level != mine.thread_level)
    add("", theirs.thread_level == 3 ? "MPI_THREAD_MULTIPLE" : "a lower thread level",
        mine.thread_level == 3 ? "MPI_THREAD_MULTIPLE" : "a lower thread level");
}

}  // namespace

bool Recording::open(const char* directory, const Identity& mine, const Names& names, Problem* problem) {
  problem->kind = ProblemKind::kNone;
  problem->text[0] = 0;
  body_ = memory::map_array<RecordingBody>();
  if (body_ == nullptr) {
    snprintf(problem->text, sizeof(problem->text), "%.1000s: no memory for reading the recording", directory);
    return fail(problem, ProblemKind::kSystem);
  }
  RecordingBody& body = *body_;
  char path[1100];
  snprintf(path, sizeof(path), "%.1000s/rank-%05d.rec", directory, mine.rank);
  bool ok = body.chain.open(path, problem);
  if (!ok && problem->kind == ProblemKind::kMissing && mine.rank != 0) {
    // Perhaps there were fewer ranks then, which says more than a missing file.
    Problem other;
    snprintf(path, sizeof(path), "%.1000s/rank-%05d.rec", directory, 0);
    if (body.chain.open(path, &other)) {
      Identity same = body.chain.head().identity;
      same.world_size = mine.world_size;
      if (!is_of(body.chain.head().identity, same, path, &other)) *problem = other;
      body.chain.close();
    }
  }
  if (!ok && problem->kind == ProblemKind::kMissing)
    snprintf(problem->text, sizeof(problem->text), "%.1000s holds no recording of rank %d (no such file rank-%05d.rec)",
             directory, mine.rank, mine.rank);
  ok = ok && is_of(body.chain.head().identity, mine, path, problem);
  if (!ok) {
    close();
    return false;
  }
  body.names = &names;
  body.openings = body.matches.place = BlockChain::first();
  compare(body.chain.head().identity, mine, body.differences, sizeof(body.differences));
  return true;
}

void Recording::close() {
  if (body_ == nullptr) return;
  body_->chain.close();
  memory::unmap_array(body_);
  body_ = nullptr;
}

const Identity& Recording::identity() const { return body_->chain.head().identity; }
FileEnd Recording::end() const { return body_->chain.end(); }
const char* Recording::end_text() const { return body_->chain.end_text(); }
const char* Recording::differences() const { return body_->differences; }
const char* Recording::problem() const { return body_->problem; }

/// Under the lock. kItem: found, and not found again.
static Reading find_stream(RecordingBody& body, uint64_t site, uint64_t nth, SeenStream* found) {
  for (SeenStream& stream : body.seen)
    if (stream.id != 0 && stream.site == site && stream.nth == nth) {
      *found = stream;
      stream.id = 0;
      return Reading::kItem;
    }
  bool keep = true;
  for (Place place = body.openings;;) {
    BlockHead block;
    Reading reading = body.chain.look(place, &block);
    if (reading == Reading::kDamaged)
      body.chain.describe(place, "its head is not that of the next block", body.problem, sizeof(body.problem));
    if (reading != Reading::kItem) return reading;
    const Place at = place;
    place = BlockChain::after(place, block);
    SeenStream* room = nullptr;
    bool wanted = false;
    if ((block.flags & kBlockOpens) != 0 && block.stream != kMatchStream) {
      reading = body.chain.payload(at, block, body.payload, body.problem, sizeof(body.problem));
      if (reading != Reading::kItem) return reading;
      Opening opening;
      if (!Decoder::opening(body.payload, body.payload + block.payload_bytes, &opening)) {
        body.chain.describe(at, "a stream that does not say where it began", body.problem, sizeof(body.problem));
        return Reading::kDamaged;
      }
      const SeenStream stream = {hash_of(opening.object, opening.offset), opening.nth, at, block.stream};
      wanted = stream.site == site && stream.nth == nth;
      if (wanted) *found = stream;
      for (SeenStream& entry : body.seen)
        if (!wanted && entry.id == 0) room = &entry;
      if (room != nullptr && keep) *room = stream;
      keep = keep && (wanted || room != nullptr);  // the rest is looked through again when there is room
    }
    if (keep) body.openings = place;
    if (wanted) return Reading::kItem;
  }
}

Cursor* Recording::stream(uint64_t first_site, uint32_t nth, Problem* problem) {
  RecordingBody& body = *body_;
  SiteName name;
  if (!body.names->site(first_site, &name)) name = {"", 0};
  while (!body.lock.lock(3600)) {}
  SeenStream found;
  const Reading reading = find_stream(body, hash_of(name.object, name.offset), nth, &found);
  problem->kind = reading == Reading::kDamaged ? ProblemKind::kDamaged : ProblemKind::kMissing;
  snprintf(problem->text, sizeof(problem->text), "%s", reading == Reading::kDamaged ? body.problem : "");
  body.lock.unlock();
  if (reading == Reading::kEnd || reading == Reading::kCut)
    snprintf(problem->text, sizeof(problem->text), "%.600s has %u %s that begins with a call from %.400s+%#llx%s%.200s",
             body.chain.path(), nth, nth == 1 ? "thread" : "threads",
             name.object[0] != 0 ? name.object : "no object file", static_cast<unsigned long long>(name.offset),
             reading == Reading::kCut ? "; " : "", reading == Reading::kCut ? body.chain.end_text() : "");
  if (reading != Reading::kItem) return nullptr;
  Cursor* cursor = memory::map_array<Cursor>();
  if (cursor == nullptr) {
    snprintf(problem->text, sizeof(problem->text), "%.1000s: no memory for reading it", body.chain.path());
    fail(problem, ProblemKind::kSystem);
    return nullptr;
  }
  problem->kind = ProblemKind::kNone;
  cursor->file_ = body_;
  cursor->id_ = found.id;
  cursor->place_ = found.place;
  cursor->stopped_ = Reading::kItem;
  cursor->next_ordinal_ = 1;
  return cursor;
}

Cursor* Recording::next_stream(uint64_t first_site, Problem* problem) {
  RecordingBody& body = *body_;
  uint32_t nth = 0;
  while (!body.lock.lock(3600)) {}
  for (uint32_t probe = 0; probe < RecordingBody::kAsked; ++probe) {
    AskedSite& entry = body.asked[(mix64(first_site) + probe) % RecordingBody::kAsked];
    if (entry.count == 0 || entry.site == first_site) {
      entry.site = first_site;
      nth = static_cast<uint32_t>(entry.count++);
      break;
    }
  }
  body.lock.unlock();
  return stream(first_site, nth, problem);
}

void Recording::release(Cursor* cursor) { memory::unmap_array(cursor); }

}  // namespace resil::record
