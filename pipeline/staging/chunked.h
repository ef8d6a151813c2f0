// SPDX-License-Identifier: Apache-2.0
//
// A large message that travels alone: cut into chunks, so that its copy down, the wire and its copy up overlap. To the
// program it stays one message. See "The way of a chunked large message" in docs/STAGING.md.
//
// The receiver *grants* the sender an entry: a message size N, a head size H, and memory for the rest, into which MPI
// receives for all chunks are posted beforehand on the private communicator. A later message of N bytes may then be
// sent as a head of H bytes, on the program's communicator with the program's tag, and chunks. Since the chunks'
// receives are posted, the sender completes without the receiver being in resil, and no rank ever waits for another one
// that it would not wait for anyway. A head is told by its size, which is random, and by a secret at its end,
// which the receiver has chosen: a program's message that has H bytes by chance is an ordinary one. A probe sees the
// size alone: for it each head is announced beforehand, with its tag and communicator.
//
// An entry is of one of two kinds. *Wire*: as above. *Peer*, for a sender on the same node: what is behind the head has
// a place in the receiver's device memory, into which the sender copies it from its own device; a word on the private
// communicator says that it is there, in place of chunks. See chunked_peer.h.
//
// Below MPI_THREAD_MULTIPLE, in the mode watch alone. Inside MPI calls of the program's one thread; nothing here is
// called while another call of it is under way.
#pragma once

#include <cstdint>

#include "pipeline/gpu/gpu.h"
#include "pipeline/staging/p2p.h"
#include "shim/runtime/private_tags.h"

namespace resil {
class JsonWriter;
}

namespace resil::staging {

constexpr uint32_t kMostChunks = 32;  ///< behind the head
constexpr uint32_t kMostEntries = 60;  ///< that a receiver grants; kTagOf's range

constexpr uint64_t kHeadUnit = 16;  ///< sizes of heads are multiples of it

struct Secret {
  uint64_t words[2];
};

/// How a granted message is cut: a head of `head` bytes, the last of which are the secret; then chunks of `chunk` bytes
/// of which the last may be shorter.
struct Cut {
  uint64_t bytes, head, chunk;
  uint32_t chunks;
  uint32_t peer;  ///< 1: one chunk, which is copied from device to device, and a word in its place on the wire
  Secret secret;

  uint64_t in_head() const { return head - sizeof(Secret); }
  uint64_t begin(uint32_t i) const { return in_head() + i * chunk; }
  uint64_t size(uint32_t i) const { return i + 1 < chunks ? chunk : bytes - begin(i); }
  uint64_t wire(uint32_t i) const { return peer != 0 ? sizeof(uint64_t) : size(i); }
};

/// An entry as its sender knows it.
struct Grant {
  Grant* next;
  Cut cut;
  int32_t to;  ///< world rank
  uint32_t number;  ///< of the receiver's
  bool free;  ///< it may be used for the next message: `returned`, and not `used`
  bool returned;  ///< the receiver is ready for it
  bool used;  ///< something of the last one's is still with the library
  bool spoiled;  ///< an ordinary message has the size of its heads: to be given up when it is free
  bool opened;  ///< peer: `far` is usable
  bool shared;  ///< peer: it has been opened once, so that its receiver must not free it
  gpu::IpcHandle handle;  ///< peer: of the receiver's device memory
  gpu::Device* on;  ///< on which it has been opened
  char* far;  ///< there: the place of what is behind the head
};

/// What goes before a head, or before the first ordinary message of its size: from then on no head has that size.
struct Announcement {
  uint64_t total;  ///< of the whole message; or cut.head: the entry is given up
  uint64_t comm;  ///< job-wide id
  int32_t tag, unused;
};

enum class EntryState : uint8_t {
  kNone,
  kOpen,  ///< all receives are posted
  kMatched,  ///< the head has been received, its chunks are awaited
};

/// An entry as its receiver knows it.
struct Entry {
  Cut cut;
  int32_t from;  ///< world rank
  EntryState state;
  bool announced;  ///< `said` has arrived
  bool begun;  ///< it has been decided where the chunks go
  bool lost;  ///< peer: `far` went with its context
  bool refused;  ///< peer: the runtime would not copy from `far`
  bool straight;  ///< the chunks are copied up as they come: `memory` has become the message's
  uint32_t arrived;  ///< chunks so far
  Announcement said;
  char* memory;  ///< pinned, cut.bytes at least
  uint64_t room;
  gpu::Device* device;
  Message* message;  ///< whose head has matched; null again once all that came is on its way up from here
  char* far;  ///< peer: device memory; `memory` is null but for what cannot be copied straight
  uint64_t word;  ///< peer: what comes in place of the chunk
  gpu::Device* emptied_by;  ///< peer: where `emptied` is recorded
  gpu::EventHandle emptied;  ///< peer: `far` has been read
  uint64_t announcement, requests[kMostChunks];
};

/// What is under way of a message that was cut.
struct Sending {
  Sending* next;
  Message* message;
  Grant* grant;
  int32_t to;
  char *head, *host;  ///< pinned
  Announcement says;
  bool announced;
  uint32_t posted, sent;
  uint64_t announcement, requests[kMostChunks];
  gpu::EventHandle events[kMostChunks + 1];  ///< of the copies down: the head's, then the chunks'
  Sending* next_deferred;
  gpu::EventHandle across;  ///< peer: of the copy to the other device, once it has been started
  bool deferred;  ///< peer: it has not been
  bool refused;  ///< peer: the runtime would not
};

/// Memory of the host that a receive was posted into, of which a head may come; or a persistent request's.
struct Target {
  Target* next;
  char* buffer;
  int64_t count;
  const TypeMap* map;  ///< held; null: not flattened, then `type` is kept
  uint64_t type, capacity;
  uint64_t request;  ///< of a persistent receive; 0: of one message
  uint64_t comm;  ///< of a persistent receive
};

/// RESIL_STAGE_CHUNK, bytes; 0: off. Set before MPI_Init returns.
extern constinit uint64_t chunk_bytes;

/// Has this rank granted anything, so that receives are to be looked at? One load.
extern constinit uint32_t chunked_granted;
/// Has this rank been granted anything, so that sends are to be looked at? One load.
extern constinit uint32_t chunked_held;

// --- chunked_entries.cpp: grants and notes
// -------------------------------------------------------------------------------

/// May messages be cut in this run? Decided once, when asked first.
bool chunked_usable();
/// World rank behind a peer; -1: none in this MPI_COMM_WORLD.
int chunked_world_rank(Thread& thread, uint64_t comm, int32_t peer);
/// A grant for such a message that is free; null: none, and it has been noted that one would be of use.
Grant* chunked_grant(Thread& thread, int32_t to, uint64_t bytes);
/// The one whose heads have that size; null: none.
Grant* chunked_grant_with_head(int32_t to, uint64_t head);
/// The receiver has given it back, or the last message has left it: free when it is both.
void chunked_loosen(Grant* grant);
/// No message will be sent by it any more. It is free.
void chunked_forget(Grant* grant);
/// The entry whose heads from there have that size; null: none.
Entry* chunked_entry(int32_t from, uint64_t head);
/// Is the announcement of the message that has the entry's head size here? Looks; never blocks.
bool chunked_announced(Entry& entry);
/// The program's message was announced to be of this entry, or the entry to be given up. For probes.
bool chunked_is_head(Thread& thread, Entry& entry, uint64_t comm, int32_t tag);
/// A context may be gone: senders are told of the entries that went with it.
void chunked_devices_changed();
/// This rank cannot open what a grant of the kind peer has: the receiver gets its memory back, and grants the other
/// kind.
void chunked_refuse(Grant* grant);
/// The entry's message has left it: posts its receives anew and tells the sender.
void chunked_regrant(Thread& thread, Entry& entry);
/// Tag of an entry's announcement (0) and chunks (1 and up) on the private communicator.
PrivateTag chunked_tag(uint32_t number, uint32_t what);
uint32_t chunked_number(const Entry& entry);
Entry* chunked_entry_numbered(uint32_t number);
/// Takes the notes that have come.
void chunked_notes(Thread& thread);
/// MPI_Finalize: answers what has been asked, waits for answers (RESIL_DRAIN_SECONDS at most; they come when the others
/// enter MPI_Finalize, too), withdraws what is posted.
void chunked_end(Thread& thread);

// --- chunked_send.cpp
// ----------------------------------------------------------------------------------------------------

/// If the message can be cut: starts its copies down, and `part` becomes its head. Else nothing has been done.
bool chunked_send_begins(Thread& thread, Message* op, SendMode mode, const MessageEnvelope& to, MessagePart* part);
/// Where its head is; `wait`: until it is somewhere.
PacketState chunked_head(const Message& op, bool wait);
/// Before the head is given to the library.
void chunked_announce(Message& op);
/// It has it; or it never will (`op.failed`).
void chunked_head_started(Thread& thread, Message* op);
/// The library is done with all of it.
void chunked_release(Message* op);
/// The program's buffer may be written: all copies from it are done.
void chunked_wait_left(Message& op);
/// Has this rank sent an ordinary message of that size, a possible head's, since it has had device buffers? It may
/// still be on its way.
bool chunked_size_sent(uint64_t bytes);
/// A message that is not cut is about to be sent: should it have the size of a head, the entry is given up.
void chunked_before_send(Thread& thread, const Half& half);
/// Tells the receiver so. The grant is free, and gone afterwards.
void chunked_give_up(Grant* grant);

/// MPI_Start, MPI_Startall: the same.
void chunked_starting(Event& event);
/// Posts the chunks that are down; `wait`: all of them. True: the library was asked for something.
bool chunked_sends_advance(Thread& thread, bool wait);

// --- chunked_receive.cpp
// -------------------------------------------------------------------------------------------------

/// A receive into host memory that may get a head. Null: none can fit, or no memory.
Message* chunked_track(Thread& thread, const Half& half);
/// A receive has `bytes` bytes from `source`. False: an ordinary message. True: its head; looked after from now on.
bool chunked_arrived(Thread& thread, Message* op, uint64_t bytes, int32_t source);
bool chunked_receives_advance(Thread& thread);
/// Calls that are not carried out by staging, but have to do with heads: probes, whose statuses say what the whole
/// message has; persistent receives, from the call that makes one to its end.
bool chunked_sees(CallId id);
void chunked_entered(Event& event);
void chunked_returned(Event& event);
/// For MPI_Mrecv and MPI_Imrecv, before the call: which entry the message is of.
void chunked_matched(const Event& event, Message* op);
void chunked_target_release(Target* target);
/// That persistent receive is no more.
void chunked_persistent_gone(uint64_t request);

/// Members of the report's object `staging`.
void chunked_report(JsonWriter& json);
void chunked_count_sent(const Cut& cut);
void chunked_count_received(const Cut& cut);

}  // namespace resil::staging
