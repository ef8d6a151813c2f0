// SPDX-License-Identifier: Apache-2.0
//
// One packet in a buffer of the program, as the stream of its data: where a fault hits it is data, never padding. And
// what can be done to it. Pure functions of their arguments; no MPI.
#pragma once

#include <cstdint>

#include "shim/model/datatype/type_map.h"

namespace resil::fault {

class Draw;

struct Packet {
  char* buffer;  ///< the argument of the call
  int64_t count;
  const TypeMap* type;
  uint64_t bytes;  ///< of the stream that belong to this packet, from its beginning

  void read(uint64_t first, uint64_t length, void* to) const { type_pack(*type, buffer, count, first, length, to); }
  void write(uint64_t first, uint64_t length, const void* from) const {
    type_unpack(*type, buffer, count, first, length, from);
  }
};

/// Bytes from `first` on are those at `packed`?
bool equal(const Packet& packet, uint64_t first, uint64_t length, const void* packed);
bool equal(const Packet& left, const Packet& right);  ///< of the same size
void exchange(const Packet& left, const Packet& right);
/// The same data at another place, by the same type.
void copy(const Packet& from, char* to_buffer);

/// Each changes the data, or nothing and returns false: no place was found where it would make a difference.
/// `position`: the first byte that it changed, in the stream. Where no rank is named, sender and receiver of a packet
/// may draw the same numbers for it: what one does, the other must not undo.
bool flip(const Packet& packet, bool sends, Draw& draw,
          uint64_t* position);  ///< one bit: an odd one of its byte when it is sent
bool swap(
    const Packet& packet, bool sends, Draw& draw,
    uint64_t* position);  ///< two words of 8 bytes (smaller in small packets), of half as many when it is received
bool zero(const Packet& packet, Draw& draw, uint64_t* position);  ///< one line of 64 bytes, counted from the beginning
bool invert(const Packet& packet, Draw& draw, uint64_t* position, uint64_t* length);  ///< up to 32 bytes in a row

}  // namespace resil::fault
