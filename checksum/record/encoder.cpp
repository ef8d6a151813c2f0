// SPDX-License-Identifier: Apache-2.0
//
// Items to bytes; the reverse is in decoder.cpp.
#include "checksum/record/encoder.h"

#include <cstddef>
#include <cstring>

#include "shim/base/hash.h"

namespace resil::record {

namespace {

using Byte = unsigned char;

Byte* put_number(Byte* at, uint64_t value) {
  while (value >= 0x80) {
    *at++ = static_cast<Byte>(value | 0x80);
    value >>= 7;
  }
  *at++ = static_cast<Byte>(value);
  return at;
}

Byte* put_signed(Byte* at, int64_t value) { return put_number(at, zigzag(value)); }

Byte* put_word(Byte* at, uint64_t value) {
  memcpy(at, &value, sizeof(value));
  return at + sizeof(value);
}

/// Cut to `most` - 1 bytes.
Byte* put_text(Byte* at, const char* text, size_t most) {
  const size_t length = strnlen(text, most - 1);
  at = put_number(at, length);
  memcpy(at, text, length);
  return at + length;
}

inline Byte* put_value(Byte* at, ValueType type, uint64_t bits) {
  if (type == ValueType::kNone) return at;
  if (type == ValueType::kDigest) [[likely]]
    return put_word(at, bits);
  switch (type) {
    case ValueType::kFloat: memcpy(at, &bits, sizeof(float)); return at + sizeof(float);
    case ValueType::kSigned: return put_signed(at, static_cast<int64_t>(bits));
    case ValueType::kUnsigned: return put_number(at, bits);
    default: return put_word(at, bits);
  }
}

struct Words {
  uint64_t word[sizeof(Shape) / sizeof(uint64_t)];
};

/// The Shape of a call as it lies in memory, made in registers: loads of words just stored in parts would wait.
Words words_of(const CallRecord& record, bool counted) {
  return {{record.comm, record.bytes, record.site,
           static_cast<uint32_t>(record.peer) | uint64_t{static_cast<uint32_t>(record.tag)} << 32,
           record.call | uint64_t{record.flags} << 16 | uint64_t{static_cast<uint8_t>(record.in_type)} << 32 |
               uint64_t{static_cast<uint8_t>(record.out_type)} << 40 | uint64_t{counted} << 48}};
}
static_assert(offsetof(Shape, peer) == 24 && offsetof(Shape, call) == 32 && offsetof(Shape, in_type) == 36 &&
              offsetof(Shape, counted) == 38 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

/// Of all words, for a table; the products do not wait for each other.
uint64_t hash_of(const Words& words) {
  uint64_t hash = words.word[0] * 0x9e3779b97f4a7c15;
  hash ^= words.word[1] * 0xbf58476d1ce4e5b9;
  hash ^= words.word[2] * 0x94d049bb133111eb;
  hash ^= words.word[3] * 0xd6e8feb86659fd93;
  hash ^= words.word[4] * 0xff51afd7ed558ccd;
  return hash ^ hash >> 32;
}

bool equal(const Shape& kept, const Words& wanted) {
  Words words;
  memcpy(&words, &kept, sizeof(words));
  return ((words.word[0] ^ wanted.word[0]) | (words.word[1] ^ wanted.word[1]) | (words.word[2] ^ wanted.word[2]) |
          (words.word[3] ^ wanted.word[3]) | (words.word[4] ^ wanted.word[4])) == 0;
}

}  // namespace

void Encoder::reset(uint64_t started) {
  step_ = 0;
  shape_count_ = site_count_ = comm_count_ = call_count_ = object_count_ = name_count_ = 0;
  last_completed_ = started;
  memset(last_times_, 0, sizeof(last_times_));
  memset(shape_slots_, 0, sizeof(shape_slots_));
  memset(site_slots_, 0, sizeof(site_slots_));
  memset(comm_slots_, 0, sizeof(comm_slots_));
  memset(call_numbers_, 0, sizeof(call_numbers_));
}

Byte* Encoder::opening(Byte* at, const SiteName& first_site, uint64_t nth) {
  *at++ = kTokenStream;
  at = put_text(at, first_site.object, kMaxPath);
  at = put_number(at, first_site.offset);
  return put_number(at, nth);
}

Byte* Encoder::call(Byte* at, const CallRecord& record, const Names& names) {
  const bool counted = (record.flags & (kCallStarted | kCallPolls)) != 0 && record.count != 1;
  const Words words = words_of(record, counted);
  if (record.step != step_) {
    *at++ = kTokenStep;
    at = put_signed(at, int64_t{record.step} - int64_t{step_});
    step_ = record.step;
  }
  uint16_t& slot = shape_slots_[hash_of(words) % (2 * kShapes)];
  if (slot != 0 && equal(shapes_[slot - 1], words)) [[likely]] {
    const uint32_t number = slot - 1u;
    if (number < kDirectShapes) {
      *at++ = static_cast<Byte>(number);
    } else {
      *at++ = kTokenShape;
      at = put_number(at, number - kDirectShapes);
    }
  } else {
    const uint32_t number = shape_count_++ % kShapes;
    memcpy(&shapes_[number], &words, sizeof(Shape));
    at = new_shape(at, shapes_[number], names);
    slot = static_cast<uint16_t>(number + 1);
  }
  if (counted) at = put_number(at, record.count);
  at = put_value(at, record.in_type, record.in);
  return put_value(at, record.out_type, record.out);
}

Byte* Encoder::new_shape(Byte* at, const Shape& shape, const Names& names) {
  uint32_t site, call = 0, comm = 0;
  at = site_number(at, shape.site, names, &site);
  const Shape& last = sites_[site].last;
  unsigned fields = shape.counted != 0 ? unsigned{kShapeCounted} : 0;
  if (shape.call != last.call || last.none != 0) {
    fields |= kShapeCall;
    at = call_number(at, shape.call, names, &call);
  }
  if (shape.comm != last.comm) {
    fields |= kShapeComm;
    at = comm_number(at, shape.comm, &comm);
  }
  fields |= (shape.flags != last.flags ? unsigned{kShapeFlags} : 0) |
            (shape.peer != last.peer ? unsigned{kShapePeer} : 0) | (shape.tag != last.tag ? unsigned{kShapeTag} : 0) |
            (shape.bytes != last.bytes ? unsigned{kShapeBytes} : 0) |
            (shape.in_type != last.in_type || shape.out_type != last.out_type ? unsigned{kShapeTypes} : 0);
  *at++ = kTokenNewShape;
  at = put_number(at, site);
  *at++ = static_cast<Byte>(fields);
  if ((fields & kShapeCall) != 0) at = put_number(at, call);
  if ((fields & kShapeFlags) != 0) at = put_number(at, shape.flags);
  if ((fields & kShapeComm) != 0) at = put_number(at, comm);
  if ((fields & kShapePeer) != 0) at = put_signed(at, int64_t{shape.peer} - int64_t{last.peer});
  if ((fields & kShapeTag) != 0) at = put_signed(at, int64_t{shape.tag} - int64_t{last.tag});
  if ((fields & kShapeBytes) != 0) at = put_signed(at, static_cast<int64_t>(shape.bytes - last.bytes));
  if ((fields & kShapeTypes) != 0) *at++ = static_cast<Byte>(shape.in_type << 4 | shape.out_type);
  sites_[site].last = shape;
  return at;
}

Byte* Encoder::site_number(Byte* at, uint64_t address, const Names& names, uint32_t* number) {
  uint16_t& slot = site_slots_[mix64(address) % (2 * kSites)];
  if (slot != 0 && sites_[slot - 1].address == address) {
    *number = slot - 1u;
    return at;
  }
  SiteName name;
  uint32_t object = 0;
  if (names.site(address, &name)) at = object_number(at, name.object, &object);
  if (object == 0) name.offset = 0;
  *number = site_count_++ % kSites;
  slot = static_cast<uint16_t>(*number + 1);
  sites_[*number].address = address;
  sites_[*number].last = {};
  sites_[*number].last.none = 1;
  *at++ = kTokenSite;
  at = put_number(at, object);
  return put_number(at, name.offset);
}

Byte* Encoder::comm_number(Byte* at, uint64_t comm, uint32_t* number) {
  uint16_t& slot = comm_slots_[mix64(comm) % (2 * kComms)];
  if (slot == 0 || comms_[slot - 1] != comm) {
    slot = static_cast<uint16_t>(comm_count_++ % kComms + 1);
    comms_[slot - 1] = comm;
    *at++ = kTokenComm;
    at = put_word(at, comm);
  }
  *number = slot - 1u;
  return at;
}

Byte* Encoder::call_number(Byte* at, uint16_t call, const Names& names, uint32_t* number) {
  uint16_t& known = call_numbers_[call % kCallNames];
  if (known == 0) {
    known = static_cast<uint16_t>(++call_count_);
    *at++ = kTokenCallName;
    at = put_text(at, names.call_name(call), kMaxName);
  }
  *number = known - 1u;
  return at;
}

Byte* Encoder::object_number(Byte* at, const char* object, uint32_t* number) {
  const uint64_t hash = hash_text(object);
  for (uint32_t i = 0; i < object_count_; ++i)
    if (objects_[i] == hash) {
      *number = i + 1;
      return at;
    }
  *number = 0;
  if (object_count_ == kObjects) return at;
  objects_[object_count_++] = hash;
  *number = object_count_;
  *at++ = kTokenObject;
  return put_text(at, object, kMaxPath);
}

Byte* Encoder::completion(Byte* at, const Completion& completion, uint32_t stream) {
  const uint32_t origin = completion.stream == 0 ? stream : completion.stream;
  const auto type = static_cast<Byte>(completion.type);
  if (origin == stream && completion.flags == 0 && completion.ordinal == last_completed_ + 1) {
    *at++ = static_cast<Byte>(kTokenCompletion + type);
  } else {
    *at++ = static_cast<Byte>(kTokenCompletionExplicit + type);
    *at++ = static_cast<Byte>((completion.flags & ~kCompletionStream) | (origin != stream ? kCompletionStream : 0));
    at = put_signed(at, static_cast<int64_t>(completion.ordinal - last_completed_ - 1));
    if (origin != stream) at = put_number(at, origin);
    if ((completion.flags & kCompletionMatch) != 0) {
      at = put_signed(at, completion.source);
      at = put_signed(at, completion.tag);
    }
    if ((completion.flags & kCompletionBytes) != 0) at = put_number(at, completion.bytes);
  }
  last_completed_ = completion.ordinal;
  return put_value(at, completion.type, completion.digest);
}

Byte* Encoder::outcome(Byte* at, const Outcome& outcome) {
  *at++ = kTokenOutcome;
  const bool flag = (outcome.what & kOutcomeFlag) != 0 && outcome.flag;
  *at++ = static_cast<Byte>((outcome.what & 0x0f) | (flag ? kOutcomeTrue : 0));
  if ((outcome.what & kOutcomeIndex) != 0) at = put_signed(at, outcome.index);
  if ((outcome.what & kOutcomeMatch) != 0) {
    at = put_signed(at, outcome.source);
    at = put_signed(at, outcome.tag);
  }
  return (outcome.what & kOutcomeBytes) != 0 ? put_number(at, outcome.bytes) : at;
}

Byte* Encoder::indices(Byte* at, const int32_t* list, uint32_t count) {
  *at++ = kTokenIndices;
  at = put_number(at, count);
  int64_t last = 0;
  for (uint32_t i = 0; i < count; ++i) {
    at = put_signed(at, list[i] - last);
    last = list[i];
  }
  return at;
}

Byte* Encoder::logged(Byte* at, LoggedKind kind, const char* name, ValueType type, uint64_t bits) {
  const uint64_t hash = hash_text(name);
  const uint32_t kept = name_count_ < kLoggedNames ? name_count_ : kLoggedNames;
  uint32_t number = 0;
  while (number < kept && logged_names_[number] != hash) ++number;
  if (number == kept) {
    number = name_count_++ % kLoggedNames;
    logged_names_[number] = hash;
    *at++ = kTokenName;
    at = put_text(at, name, kMaxName);
  }
  *at++ = kTokenLogged;
  *at++ = static_cast<Byte>(static_cast<unsigned>(kind) << 4 | static_cast<unsigned>(type));
  at = put_number(at, number);
  return put_value(at, type, bits);
}

Byte* Encoder::text(Byte* at, const char* text) {
  *at++ = kTokenText;
  return put_text(at, text, kMaxText);
}

Byte* Encoder::time(Byte* at, uint8_t clock, uint64_t bits) {
  *at++ = clock == kClockWtime ? kTokenTime : kTokenClock;
  if (clock != kClockWtime) *at++ = clock;
  at = put_signed(at, static_cast<int64_t>(bits - last_times_[clock]));
  last_times_[clock] = bits;
  return at;
}

Byte* encode_match(Byte* at, uint32_t stream, uint64_t ordinal, uint64_t* last, const Match& match) {
  at = put_number(at, stream);
  at = put_signed(at, static_cast<int64_t>(ordinal - *last));
  *last = ordinal;
  *at++ = match.flags;
  at = put_signed(at, match.source);
  return put_signed(at, match.tag);
}

}  // namespace resil::record
