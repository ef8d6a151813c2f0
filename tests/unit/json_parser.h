// SPDX-License-Identifier: Apache-2.0
//
// A strict JSON parser for tests: RFC 8259 to the letter, UTF-8 after RFC 3629, nothing tolerated.
#pragma once

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

struct Json {
  struct Member;
  enum Kind { kNull, kBoolean, kNumber, kString, kArray, kObject } kind = kNull;
  bool boolean = false;
  double number = 0;
  std::string string;
  std::vector<Json> items;
  std::vector<Member> members;
};

struct Json::Member {
  std::string first;
  Json second;
};

/// Length of the valid UTF-8 sequence at `i`, 0 if there is none. Decodes and encodes again: another way than shim/.
inline size_t utf8_sequence(const std::string& s, size_t i) {
  auto byte = [&](size_t k) { return k < s.size() ? static_cast<unsigned char>(s[k]) : 0u; };
  unsigned lead = byte(i);
  size_t length = lead < 0x80 ? 1 : (lead >> 5) == 6 ? 2 : (lead >> 4) == 14 ? 3 : (lead >> 3) == 30 ? 4 : 0;
  if (length < 2) return length;
  unsigned code = lead & (0x7fu >> length);
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) >> 6) != 2) return 0;
    code = code << 6 | (byte(i + k) & 0x3f);
  }
  const unsigned smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  return code < smallest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : length;
}

class JsonParser {
 public:
  explicit JsonParser(const std::string& text) : text_(text) {}
  bool parse(Json* value) { return element(value) && at_ == text_.size(); }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) { return peek() == c && at_ < text_.size() ? ++at_, true : false; }
  void space() {
    while (at_ < text_.size() && strchr(" \t\r\n", text_[at_]) != nullptr) ++at_;
  }
  bool word(const char* w) {
    if (text_.compare(at_, strlen(w), w) != 0) return false;
    at_ += strlen(w);
    return true;
  }
  bool element(Json* v) {
    space();
    bool ok = value(v);
    space();
    return ok;
  }
  bool digits() {
    size_t first = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ != first;
  }
  bool number(Json* v) {
    size_t first = at_;
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (!digits()) return false;
    }
    v->kind = Json::kNumber;
    // Not strtod: that one reads numbers as the locale writes them.
    return std::from_chars(text_.data() + first, text_.data() + at_, v->number).ec == std::errc();
  }
  bool string(std::string* out) {
    if (!take('"')) return false;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) return false;
      if (take('\\')) {
        if (take('u')) {
          unsigned code = 0;
          for (int i = 0; i < 4; ++i, ++at_) {
            if (peek() == 0 || strchr("0123456789abcdefABCDEF", peek()) == nullptr) return false;
            code = code * 16 + static_cast<unsigned>(strtoul(std::string(1, peek()).c_str(), nullptr, 16));
          }
          if (code >= 0xd800 && code < 0xe000) return false;
          if (code >= 0x800)
            *out += {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f))};
          else if (code >= 0x80) *out += static_cast<char>(0xc0 | code >> 6);
          *out += static_cast<char>(code < 0x80 ? code : 0x80 | (code & 0x3f));
        } else {
          const char* found = peek() != 0 ? strchr("\"\"\\\\//b\bf\fn\nr\rt\t", peek()) : nullptr;
          if (found == nullptr) return false;
          *out += found[1];
          ++at_;
        }
        continue;
      }
      size_t length = utf8_sequence(text_, at_);
      if (length == 0) return false;
      out->append(text_, at_, length);
      at_ += length;
    }
    return take('"');
  }
  bool value(Json* v) {
    if (peek() == '{' || peek() == '[') {
      const bool object = text_[at_++] == '{';
      const char close = object ? '}' : ']';
      v->kind = object ? Json::kObject : Json::kArray;
      space();
      if (take(close)) return true;
      do {
        std::string key;
        Json item;
        space();
        if (object) {
          if (!string(&key)) return false;
          space();
          if (!take(':')) return false;
        }
        if (!element(&item)) return false;
        if (object) v->members.push_back({key, item});
        else v->items.push_back(item);
      } while (take(','));
      return take(close);
    }
    if (peek() == '"') {
      v->kind = Json::kString;
      return string(&v->string);
    }
    if (word("true") || word("false")) {
      v->kind = Json::kBoolean;
      v->boolean = text_[at_ - 2] == 'u';
      return true;
    }
    if (word("null")) return true;
    return number(v);
  }

  const std::string& text_;
  size_t at_ = 0;
};
