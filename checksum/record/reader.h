// SPDX-License-Identifier: Apache-2.0
//
// Reads one rank's recording, block by block, for verify. Memory is bounded: about 310 KiB a stream that is being read,
// 2 MiB for matches and openings of streams; nothing grows with the recording.
//
// Context: Recording's functions may be called by any thread (short locks); a Cursor belongs to one thread. next()
// reads from the file about once in 64 KiB. No MPI, no allocation but mmap when a cursor is made.
#pragma once

#include <cstddef>
#include <cstdint>

#include "checksum/record/decoder.h"
#include "checksum/record/format.h"

namespace resil::record {

/// How reading went on.
enum class Reading : uint8_t {
  kItem,  ///< there is an item
  kEnd,  ///< the stream is at its end: its thread ended, or the recording was finished
  kCut,  ///< the recording ends here and the program went on: killed, aborted, cut off, or the disk was full
  kDamaged,  ///< a block is damaged; problem() says which
};

/// What the file itself tells of its end, as far as it is known when it is opened.
enum class FileEnd : uint8_t {
  kFinished,  ///< clean end
  kAborted,  ///< MPI_Abort: everything up to then is there
  kFailed,  ///< recording ended early; end_text() says why
  kKilled,  ///< no end mark: the program was killed, or still runs
  kCutOff,  ///< shorter than its end mark says
};

class Cursor;
struct RecordingBody;

/// A block's place in its file.
struct Place {
  uint64_t offset, sequence;
};

class Recording {
 public:
  /// Opens rank's file in `directory`, checks its head and its identity against `mine`: program (build id), size, rank
  /// and reduction mode must agree. Another MPI, thread level, path or host is allowed, see differences(). False:
  /// `problem` has one line. `names` must stay.
  bool open(const char* directory, const Identity& mine, const Names& names, Problem* problem);
  void close();

  const Identity& identity() const;
  FileEnd end() const;
  const char* end_text() const;  ///< one sentence; "" for kFinished
  /// What differs from `mine` without being forbidden, one line, e.g. "recorded with Open MPI 4.1.4, this is MPICH
  /// 4.0.2"; "" when nothing does.
  const char* differences() const;

  /// The stream of the calling thread: the `nth` one (from 0) among those whose first call came from `first_site`. Each
  /// can be taken once. Null: the recording has none (`problem` kMissing), or it cannot be read.
  Cursor* stream(uint64_t first_site, uint32_t nth, Problem* problem);
  /// The next stream that begins at `first_site`, in the order of recording: counts `nth` itself.
  Cursor* next_stream(uint64_t first_site, Problem* problem);
  /// Gives back a cursor's memory. Null is allowed.
  void release(Cursor* cursor);

  /// What the receive with wildcards number `ordinal` of `stream` (Cursor::id) got. Each can be asked once. kItem:
  /// found; kEnd and kCut: never completed in the recording; kDamaged. Reads ahead in the matches alone, and remembers
  /// up to kMatches of those that others will ask for; with more of them pending it reads again.
  Reading match(uint32_t stream, uint64_t ordinal, Match* match);
  static constexpr uint32_t kMatches = 32768;

  const char* problem() const;  ///< with kDamaged: which block of which file

 private:
  RecordingBody* body_ = nullptr;
};

class Cursor {
 public:
  /// The next item, consumed.
  Reading next(Item* item);
  /// The next item, left in place. Cheap when called again. `item` stays valid until next() or skip().
  Reading peek(const Item** item);
  /// Consumes the item that peek() has shown, without a copy.
  void skip();
  /// Name of the call site of the call read last (by next or peek), and the call's name, also when this process does
  /// not know them. Nothing before the first call.
  SiteName site() const { return decoder_.site(); }
  const char* call_name() const { return decoder_.call_name(); }

  uint32_t id() const { return id_; }  ///< of the stream, from 1
  uint64_t number() const { return number_; }  ///< of the last call consumed, from 1
  uint64_t next_ordinal() const { return next_ordinal_; }  ///< that the next request started will have
  const char* problem() const { return problem_; }  ///< with kCut and kDamaged: one line

 private:
  friend class Recording;

  Reading load();
  Reading stop(Reading reading, const char* why);

  RecordingBody* file_;
  uint32_t id_;
  bool peeked_, closed_;
  Reading stopped_;  // kItem: not
  Place place_, block_;  // the next block to look at; the one that is being read
  uint32_t segment_, offset_;  // the next segment's number; where in the present one its next block must begin
  uint64_t number_, next_ordinal_;
  Item item_;
  Decoder decoder_;
  char problem_[1400];
  unsigned char payload_[65536];
};

}  // namespace resil::record
