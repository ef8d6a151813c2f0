// SPDX-License-Identifier: Apache-2.0
//
// Bytes to items.
#include "checksum/record/decoder.h"

#include <cstring>

namespace resil::record {

namespace {

using Byte = unsigned char;

bool get_number(const Byte** at, const Byte* end, uint64_t* value) {
  uint64_t result = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (*at == end) return false;
    const Byte byte = *(*at)++;
    result |= uint64_t{byte & 0x7fu} << shift;
    if ((byte & 0x80) == 0) {
      *value = result;
      return true;
    }
  }
  return false;
}

template <class Integer>
bool get(const Byte** at, const Byte* end, Integer* value) {
  uint64_t number;
  if (!get_number(at, end, &number)) return false;
  *value = static_cast<Integer>(number);
  return static_cast<uint64_t>(*value) == number;
}

bool get_signed(const Byte** at, const Byte* end, int64_t* value) {
  uint64_t number;
  if (!get_number(at, end, &number)) return false;
  *value = unzigzag(number);
  return true;
}

bool get_int(const Byte** at, const Byte* end, int32_t* value, int64_t base = 0) {
  int64_t number;
  if (!get_signed(at, end, &number)) return false;
  int64_t sum;
  if (__builtin_add_overflow(number, base, &sum)) return false;
  *value = static_cast<int32_t>(sum);
  return *value == sum;
}

bool get_raw(const Byte** at, const Byte* end, void* to, size_t bytes) {
  if (static_cast<size_t>(end - *at) < bytes) return false;
  memcpy(to, *at, bytes);
  *at += bytes;
  return true;
}

bool get_text(const Byte** at, const Byte* end, char* to, size_t room) {
  size_t length;
  if (!get(at, end, &length) || length >= room || !get_raw(at, end, to, length)) return false;
  to[length] = 0;
  return true;
}

bool get_value(const Byte** at, const Byte* end, ValueType type, uint64_t* bits) {
  *bits = 0;
  switch (type) {
    case ValueType::kNone: return true;
    case ValueType::kFloat: return get_raw(at, end, bits, sizeof(float));
    case ValueType::kSigned: {
      int64_t value;
      if (!get_signed(at, end, &value)) return false;
      *bits = static_cast<uint64_t>(value);
      return true;
    }
    case ValueType::kUnsigned: return get_number(at, end, bits);
    default: return get_raw(at, end, bits, sizeof(*bits));
  }
}

bool is_type(unsigned type) { return type <= static_cast<unsigned>(ValueType::kBytes); }

}  // namespace

void Decoder::reset(uint64_t number, uint64_t started) {
  number_ = number;
  started_ = last_completed_ = started;
  step_ = 0;
  shape_count_ = site_count_ = comm_count_ = call_count_ = object_count_ = name_count_ = 0;
  memset(last_times_, 0, sizeof(last_times_));
  at_ = end_ = nullptr;
}

void Decoder::feed(const Byte* begin, const Byte* end) {
  at_ = begin;
  end_ = end;
}

void Decoder::place(Item* item, ItemKind kind) const {
  item->kind = kind;
  item->number = number_;
}

bool Decoder::next(Item* item, const Names& names, bool* some) {
  *some = false;
  while (at_ != end_) {
    const uint8_t token = *at_++;
    *some = true;
    if (token < kDirectShapes) return call(token, item);
    if (token >= kTokenCompletion) return completion(token, item);
    uint64_t number;
    switch (token) {
      case kTokenShape:
        return get_number(&at_, end_, &number) && number < kShapes &&
               call(static_cast<uint32_t>(number) + kDirectShapes, item);
      case kTokenNewShape: {
        uint32_t shape;
        return new_shape(&shape) && call(shape, item);
      }
      case kTokenOutcome: return outcome(item);
      case kTokenIndices: return indices(item);
      case kTokenLogged: return logged(item);
      case kTokenTime:
      case kTokenClock: return time(token, item);
      case kTokenText:
        place(item, ItemKind::kText);
        item->text = text_;
        return get_text(&at_, end_, text_, sizeof(text_));
      case kTokenStep: {
        int64_t change;
        if (!get_signed(&at_, end_, &change)) return false;
        step_ += static_cast<uint32_t>(change);
        break;
      }
      case kTokenCallName: {
        if (call_count_ == kCallNames || !get_text(&at_, end_, call_names_[call_count_], kMaxName)) return false;
        calls_[call_count_] = names.call_id(call_names_[call_count_]);
        ++call_count_;
        break;
      }
      case kTokenObject:
        if (object_count_ == kObjects || !get_text(&at_, end_, objects_[object_count_++], kMaxPath)) return false;
        break;
      case kTokenSite:
        if (!define_site(names)) return false;
        break;
      case kTokenComm:
        if (!get_raw(&at_, end_, &comms_[comm_count_++ % kComms], sizeof(uint64_t))) return false;
        break;
      case kTokenName:
        if (!get_text(&at_, end_, logged_names_[name_count_++ % kLoggedNames], kMaxName)) return false;
        break;
      case kTokenStream: {
        char object[kMaxPath];
        if (!get_text(&at_, end_, object, sizeof(object)) || !get_number(&at_, end_, &number) ||
            !get_number(&at_, end_, &number))
          return false;
        break;
      }
      default: return false;
    }
    *some = false;
  }
  return true;
}

bool Decoder::define_site(const Names& names) {
  Site& site = sites_[site_count_++ % kSites];
  if (!get(&at_, end_, &site.object) || !get_number(&at_, end_, &site.offset)) return false;
  if (site.object != 0 && site.object > object_count_) return false;
  site.address = site.object == 0 ? 0 : names.address({objects_[site.object - 1], site.offset});
  site.last = {};
  site.last.none = 1;
  site.last.site = site.address;
  site.call_name = 0;
  return true;
}

bool Decoder::new_shape(uint32_t* number) {
  uint32_t place;
  if (!get(&at_, end_, &place) || place >= (site_count_ < kSites ? site_count_ : kSites) || at_ == end_) return false;
  Site& site = sites_[place];
  Shape& shape = site.last;
  const unsigned fields = *at_++;
  if ((fields & kShapeCall) != 0) {
    uint32_t call;
    if (!get(&at_, end_, &call) || call >= call_count_) return false;
    shape.call = calls_[call];
    site.call_name = static_cast<uint16_t>(call);
  } else if (shape.none != 0) {
    return false;
  }
  shape.none = 0;
  if ((fields & kShapeFlags) != 0 && !get(&at_, end_, &shape.flags)) return false;
  if ((fields & kShapeComm) != 0) {
    uint32_t comm;
    if (!get(&at_, end_, &comm) || comm >= (comm_count_ < kComms ? comm_count_ : kComms)) return false;
    shape.comm = comms_[comm];
  }
  if ((fields & kShapePeer) != 0 && !get_int(&at_, end_, &shape.peer, shape.peer)) return false;
  if ((fields & kShapeTag) != 0 && !get_int(&at_, end_, &shape.tag, shape.tag)) return false;
  if ((fields & kShapeBytes) != 0) {
    int64_t change;
    if (!get_signed(&at_, end_, &change)) return false;
    shape.bytes += static_cast<uint64_t>(change);
  }
  if ((fields & kShapeTypes) != 0) {
    if (at_ == end_ || !is_type(*at_ >> 4) || !is_type(*at_ & 0x0f)) return false;
    shape.in_type = static_cast<uint8_t>(*at_ >> 4);
    shape.out_type = *at_++ & 0x0f;
  }
  shape.counted = (fields & kShapeCounted) != 0;
  *number = shape_count_++ % kShapes;
  shapes_[*number] = {shape, site.offset, site.object, site.call_name};
  return true;
}

bool Decoder::call(uint32_t number, Item* item) {
  if (number >= (shape_count_ < kShapes ? shape_count_ : kShapes)) return false;
  const Known& known = shapes_[number];
  const Shape& shape = known.shape;
  site_ = {known.object == 0 ? "" : objects_[known.object - 1], known.offset};
  call_name_ = known.call_name;
  ++number_;
  place(item, ItemKind::kCall);
  CallRecord& call = item->call;
  call = {};
  call.comm = shape.comm;
  call.bytes = shape.bytes;
  call.site = shape.site;
  call.peer = shape.peer;
  call.tag = shape.tag;
  call.step = step_;
  call.count = 1;
  call.call = shape.call;
  call.flags = shape.flags;
  call.in_type = static_cast<ValueType>(shape.in_type);
  call.out_type = static_cast<ValueType>(shape.out_type);
  if (shape.counted != 0 && !get(&at_, end_, &call.count)) return false;
  item->ordinal = 0;
  if ((shape.flags & kCallStarted) != 0) {
    item->ordinal = started_ + 1;
    started_ += call.count;
  }
  return get_value(&at_, end_, call.in_type, &call.in) && get_value(&at_, end_, call.out_type, &call.out);
}

bool Decoder::completion(uint8_t token, Item* item) {
  const unsigned type = token & 7;
  if (token >= kTokenCompletionExplicit + 8 || !is_type(type)) return false;
  place(item, ItemKind::kCompletion);
  Completion& completion = item->completion;
  completion = {};
  completion.type = static_cast<ValueType>(type);
  completion.ordinal = last_completed_ + 1;
  if (token >= kTokenCompletionExplicit) {
    int64_t change;
    if (at_ == end_) return false;
    const unsigned flags = *at_++;
    completion.flags = static_cast<uint8_t>(flags & ~unsigned{kCompletionStream});
    if (!get_signed(&at_, end_, &change) ||
        ((flags & kCompletionStream) != 0 && !get(&at_, end_, &completion.stream)) ||
        ((flags & kCompletionMatch) != 0 &&
         (!get_int(&at_, end_, &completion.source) || !get_int(&at_, end_, &completion.tag))) ||
        ((flags & kCompletionBytes) != 0 && !get_number(&at_, end_, &completion.bytes)))
      return false;
    completion.ordinal += static_cast<uint64_t>(change);
  }
  last_completed_ = completion.ordinal;
  return get_value(&at_, end_, completion.type, &completion.digest);
}

bool Decoder::outcome(Item* item) {
  if (at_ == end_) return false;
  place(item, ItemKind::kOutcome);
  Outcome& outcome = item->outcome;
  outcome = {};
  outcome.flag = (*at_ & kOutcomeTrue) != 0;
  outcome.what = *at_++ & 0x0f;
  return ((outcome.what & kOutcomeIndex) == 0 || get_int(&at_, end_, &outcome.index)) &&
         ((outcome.what & kOutcomeMatch) == 0 ||
          (get_int(&at_, end_, &outcome.source) && get_int(&at_, end_, &outcome.tag))) &&
         ((outcome.what & kOutcomeBytes) == 0 || get_number(&at_, end_, &outcome.bytes));
}

bool Decoder::indices(Item* item) {
  place(item, ItemKind::kIndices);
  if (!get(&at_, end_, &item->indices) || item->indices > kMaxIndices) return false;
  int32_t last = 0;
  for (uint32_t i = 0; i < item->indices; ++i) {
    if (!get_int(&at_, end_, &index_list_[i], last)) return false;
    last = index_list_[i];
  }
  item->index_list = index_list_;
  return true;
}

bool Decoder::logged(Item* item) {
  if (at_ == end_ || !is_type(*at_ & 0x0f) || *at_ >> 4 == 0 || *at_ >> 4 > static_cast<unsigned>(LoggedKind::kOther))
    return false;
  place(item, ItemKind::kLogged);
  item->logged = static_cast<LoggedKind>(*at_ >> 4);
  item->type = static_cast<ValueType>(*at_++ & 0x0f);
  uint32_t number;
  if (!get(&at_, end_, &number) || number >= (name_count_ < kLoggedNames ? name_count_ : kLoggedNames)) return false;
  item->text = logged_names_[number];
  return get_value(&at_, end_, item->type, &item->bits);
}

bool Decoder::time(uint8_t token, Item* item) {
  place(item, ItemKind::kTime);
  item->clock = kClockWtime;
  if (token == kTokenClock && (at_ == end_ || (item->clock = *at_++) >= kClocks || item->clock == kClockWtime))
    return false;
  int64_t change;
  if (!get_signed(&at_, end_, &change)) return false;
  item->bits = last_times_[item->clock] += static_cast<uint64_t>(change);
  return true;
}

bool Decoder::opening(const Byte* begin, const Byte* end, Opening* opening) {
  return begin != end && *begin++ == kTokenStream && get_text(&begin, end, opening->object, sizeof(opening->object)) &&
         get_number(&begin, end, &opening->offset) && get_number(&begin, end, &opening->nth);
}

bool decode_match(const Byte** at, const Byte* end, uint32_t* stream, uint64_t* ordinal, uint64_t* last, Match* match) {
  int64_t change;
  if (!get(at, end, stream) || !get_signed(at, end, &change) || *at == end) return false;
  *last += static_cast<uint64_t>(change);
  *ordinal = *last;
  match->flags = *(*at)++;
  return get_int(at, end, &match->source) && get_int(at, end, &match->tag);
}

}  // namespace resil::record
