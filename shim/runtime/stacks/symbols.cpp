// SPDX-License-Identifier: Apache-2.0
//
// Names from DT_SYMTAB, its length from DT_GNU_HASH or DT_HASH (the dynamic section does not say it). Everything is
// read through the guarded reader: the object may be unloaded by another thread meanwhile. May touch: loaded objects,
// read only.
#include "shim/runtime/stacks/symbols.h"

#include <elf.h>

#include <cstring>

namespace resil::stacks {
namespace {

using Symbol = Elf64_Sym;

/// The part of a dynamic section that names need. Addresses are run-time addresses, all of them inside the object: what
/// a damaged section says leads nowhere else, and no walk is longer than the object.
struct Tables {
  uint64_t symbols, strings, string_bytes, gnu_hash, hash;
  uint64_t end;  ///< of the object
};

bool read_tables(Reader& reader, const Object& object, Tables* tables) {
  *tables = Tables{};
  tables->end = object.end;
  if (object.dynamic == 0) return false;
  // The loader has relocated these in place, but for objects that it does not own (the vdso).
  const auto address = [&](uint64_t value) {
    value = value < object.base ? value + object.base : value;
    return value >= object.start && value < object.end ? value : 0;
  };
  for (int i = 0; i < 256; ++i) {
    Elf64_Dyn entry;
    if (!reader.load(object.dynamic + i * sizeof entry, &entry) || entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_SYMTAB) tables->symbols = address(entry.d_un.d_ptr);
    if (entry.d_tag == DT_STRTAB) tables->strings = address(entry.d_un.d_ptr);
    if (entry.d_tag == DT_STRSZ) tables->string_bytes = entry.d_un.d_val;
    if (entry.d_tag == DT_GNU_HASH) tables->gnu_hash = address(entry.d_un.d_ptr);
    if (entry.d_tag == DT_HASH) tables->hash = address(entry.d_un.d_ptr);
  }
  return tables->symbols != 0 && tables->strings != 0;
}

/// Number of symbols: one more than the last one of the longest hash chain. From `enough` on it need not be exact.
uint32_t count_symbols(Reader& reader, const Tables& tables, uint64_t enough) {
  if (tables.hash != 0) {
    uint32_t words[2];  // nbucket, nchain
    return reader.load(tables.hash, &words) ? words[1] : 0;
  }
  uint32_t header[4];  // nbuckets, symoffset, bloom_size, bloom_shift
  if (tables.gnu_hash == 0 || !reader.load(tables.gnu_hash, &header)) return 0;
  const uint64_t buckets = tables.gnu_hash + sizeof header + uint64_t{header[2]} * 8;
  const uint64_t chains = buckets + uint64_t{header[0]} * 4;
  if (chains > tables.end) return 0;
  uint32_t last = 0;
  for (uint32_t i = 0; i < header[0]; ++i) {
    uint32_t first;
    if (!reader.load(buckets + uint64_t{i} * 4, &first)) return 0;
    if (first > last) last = first;
    if (last >= enough) return last;
  }
  if (last < header[1]) return header[1];
  for (;; ++last) {
    uint32_t hash;
    const uint64_t at = chains + uint64_t{last - header[1]} * 4;
    if (at >= tables.end || !reader.load(at, &hash)) return 0;
    if ((hash & 1) != 0) return last + 1;
  }
}

const char* base_name(const char* path) {
  const char* name = path;
  for (; *path != 0; ++path) {
    if (*path == '/' && path[1] != 0) name = path + 1;
  }
  return name;
}

}  // namespace

void Symbols::reset() {
  reader_.reset();
  object_count_ = 0;
  name_limit_ = SIZE_MAX;
  for (Entry& entry : entries_) entry.address = 0;
  search_limit_ = ~uint64_t{0};
}

bool Symbols::search(uint64_t address, const Object& object, Entry* entry) {
  Tables tables;
  if (!read_tables(reader_, object, &tables)) return false;
  const uint64_t most = (tables.end - tables.symbols) / sizeof(Symbol),
                 told = count_symbols(reader_, tables, search_limit_);
  uint64_t count = told < most ? told : most;
  if (count > search_limit_) count = search_limit_;
  for (uint64_t i = 1; i < count; ++i) {
    Symbol symbol;
    if (!reader_.load(tables.symbols + i * sizeof symbol, &symbol)) return false;
    const auto type = ELF64_ST_TYPE(symbol.st_info);
    if (symbol.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_GNU_IFUNC)) continue;
    if (tables.string_bytes != 0 && symbol.st_name >= tables.string_bytes) continue;
    const uint64_t value = symbol.st_value + object.base;
    // A static function lies between two exported ones: only the size says that it is not the one before. Without a
    // size (hand-written assembly) nothing does, so such a symbol names its first byte at most.
    if (value > address || address - value >= (symbol.st_size != 0 ? symbol.st_size : 1)) continue;
    if (entry->name != 0 && value <= entry->value) continue;
    entry->value = value;
    entry->name = tables.strings + symbol.st_name;
  }
  return entry->name != 0;
}

const Symbols::Entry& Symbols::lookup(uint64_t address, const Object& object) {
  Entry& entry = entries_[(address ^ (address >> 9)) % kEntries];
  if (entry.address == address) return entry;
  entry = Entry{address, 0, 0};
  search(address, object, &entry);
  return entry;
}

void Symbols::put_name(SafeText& text, uint64_t offset) {
  text.safe(name_, name_limit_ < sizeof name_ ? name_limit_ : sizeof name_);
  if (strnlen(name_, sizeof name_) > name_limit_) text.str("…");
  text.chr('+').hex(offset);
}

void Symbols::put_object(SafeText& text, const Object& object) {
  bool known = false;
  for (uint32_t i = 0; i < object_count_; ++i) known = known || objects_[i].start == object.start;
  if (!known && object_count_ < kObjects) objects_[object_count_++] = object;
  object_path(object, reader_, name_, sizeof name_);
  text.safe(base_name(name_), sizeof name_);
}

void Symbols::put(SafeText& text, uint64_t address, bool call_site) {
  Object object;
  const uint64_t inside = call_site ? address - 1 : address;
  if (!find_object(inside, &object)) {
    text.hex(address);
    return;
  }
  const Entry& entry = lookup(inside, object);
  if (entry.name != 0 && reader_.text(entry.name, name_, sizeof name_)) {
    put_name(text, address - entry.value);
    text.str(" (");
    put_object(text, object);
    text.chr(')');
    return;
  }
  put_object(text, object);
  text.chr('+').hex(address - object.base);
}

void Symbols::put_site(SafeText& text, uint64_t address) {
  Object object;
  if (address == 0 || !find_object(address - 1, &object)) {
    text.hex(address);
    return;
  }
  put_object(text, object);
  text.chr('+').hex(address - object.base);
  const Entry& entry = lookup(address - 1, object);
  if (entry.name != 0 && reader_.text(entry.name, name_, sizeof name_)) {
    text.str(" (");
    put_name(text, address - entry.value);
    text.chr(')');
  }
}

void Symbols::put_objects(SafeText& text) {
  for (uint32_t i = 0; i < object_count_; ++i) {
    object_path(objects_[i], reader_, name_, sizeof name_);
    text.str("  ").safe(base_name(name_), sizeof name_).str(" at ").hex(objects_[i].base).str(": ");
    text.safe(name_, sizeof name_).chr('\n');
  }
}

}  // namespace resil::stacks
