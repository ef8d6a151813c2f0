// SPDX-License-Identifier: Apache-2.0
//
// How many bytes a call names, from its arguments. Only arguments that the standard calls significant on this rank
// are looked at: the others may be uninitialised, and asking MPI for the size of a garbage datatype is fatal.

#include <initializer_list>

#include "shim/abi/backend.h"
#include "shim/tables/tables.h"

namespace resil {

namespace {

/// Bytes of all blocks. A type is asked about only when there are elements of it.
[[gnu::always_inline]] inline uint64_t bytes_of(Event& e, const Transfer& t) {
  if (t.types == nullptr) {
    int64_t elements = (t.end - t.first) * t.count;
    if (t.counts != nullptr) {
      elements = 0;
      for (int64_t i = t.first; i < t.end; ++i) elements += t.count_of(i);
    }
    return elements > 0 ? static_cast<uint64_t>(elements) * static_cast<uint64_t>(type_size(*e.thread, t.type)) : 0;
  }
  uint64_t sum = 0;
  for (int64_t i = t.first; i < t.end; ++i)
    if (const int64_t count = t.count_of(i); count > 0)
      sum += static_cast<uint64_t>(count) * static_cast<uint64_t>(type_size(*e.thread, t.type_of(i)));
  return sum;
}

}  // namespace

Members neighbors_of(CommInfo& comm) {
  if (comm.degree_out == -1) {
    int in = 0, out = 0;
    const bool topology = backend->comm_degree(comm.handle, &in, &out);
    comm.degree_in = topology ? in : -2;
    comm.degree_out = topology ? out : -2;
  }
  return {comm.rank, comm.size, comm.remote_size, comm.degree_in > 0 ? comm.degree_in : 0,
          comm.degree_out > 0 ? comm.degree_out : 0};
}

uint64_t argument_bytes(Event& e, const DataArgument& side) {
  if (side.count <= 0) return 0;
  return static_cast<uint64_t>(side.count) * static_cast<uint64_t>(type_size(*e.thread, side.type));
}

/// Flattened: of the transfer only what is summed up is then ever made.
[[gnu::flatten]] uint64_t compute_bytes(Event& e) {
  const CallInfo& info = call_info(e.id);
  if (info.has(kCallHasData) && !has_root(info.collective)) {
    // Point-to-point (whoever the partner is), I/O, neighbour allgather, reductions without a root; one-sided calls
    // with a result use its arguments (the origin's are not significant with MPI_NO_OP). The generator sets the side
    // that the call has.
    const bool receive = info.attributes & kCallReceives;
    return argument_bytes(e, receive ? e.receive : e.send);
  }
  if (info.has(kCallPartitioned))
    return argument_bytes(e, info.attributes & kCallReceives ? e.receive : e.send) *
           static_cast<uint64_t>(e.partitions);
  if (e.comm == nullptr || e.comm->size < 0) return 0;
  const Members members = is_neighborhood(info.collective) ? neighbors_of(*e.comm) : members_of(*e.comm);
  switch (info.collective) {
    case Collective::kBcast:  // the same at both ends
    case Collective::kReduce: return is_bystander(e, members) ? 0 : argument_bytes(e, e.send);
    case Collective::kScatter: return bytes_of(e, received(e, members, backend->is_in_place));
    default:  // what is received is counted by the senders
      return bytes_of(e, sent(e, members, backend->is_in_place));
  }
}

void forget_type(Thread* thread, uint64_t type) {
  handle_generation.fetch_add(1, std::memory_order_relaxed);
  if (thread == nullptr || thread != current_thread || threads_made.load(std::memory_order_relaxed) != 1) {
    forget_calls();  // other threads' call sites are theirs
    return;
  }
  thread->freed_type = type;
  const unsigned first_number = TypeSites::first_of(type), second_number = TypeSites::second_of(type);
  uint64_t &by_first = thread->type_sites.first[first_number], &by_second = thread->type_sites.second[second_number];
  for (uint64_t left = by_first & by_second; left != 0; left &= left - 1) {
    const auto group = static_cast<unsigned>(__builtin_ctzll(left));
    const bool is_former = group >= TypeSites::kOfSites;
    const unsigned together = is_former ? TypeSites::kFormerTogether : TypeSites::kTogether;
    SiteEntry* sites = is_former ? &thread->former[(group - TypeSites::kOfSites) * TypeSites::kFormerTogether]
                                 : &thread->sites[group * TypeSites::kTogether];
    bool found = false, has_first = false, has_second = false;
    for (unsigned i = 0; i < together; ++i) {
      // Of calls with one type the second is none: what is closed or kept for it in vain does no harm.
      if (sites[i].type != type && sites[i].receive_type != type) continue;
      sites[i].id = kNoCall;
      found = true;
    }
    if (found) continue;  // whether the others have its numbers is seen when one that has them is freed in vain
    for (unsigned i = 0; i < together; ++i)
      for (const uint64_t other : {sites[i].type, sites[i].receive_type}) {
        has_first = has_first || TypeSites::first_of(other) == first_number;
        has_second = has_second || TypeSites::second_of(other) == second_number;
      }
    if (!has_first) by_first &= ~(uint64_t{1} << group);
    if (!has_second) by_second &= ~(uint64_t{1} << group);
  }
}

int64_t type_size_slow(Thread& thread, uint64_t type) {
  uint32_t generation = handle_generation.load(std::memory_order_acquire);
  if (thread.type_generation != generation) {
    for (TypeCacheEntry& entry : thread.types) entry = {};
    thread.type_generation = generation;
  }
  int64_t bytes = 0;
  if (!backend->type_size(type, &bytes)) bytes = 0;
  thread.types[(type ^ (type >> 9)) % kTypeCache] = {type, bytes, nullptr};
  return bytes;
}

}  // namespace resil
