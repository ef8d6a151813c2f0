// SPDX-License-Identifier: Apache-2.0
//
// Entry points of the fuzzed parsers: each takes any bytes, and ends the process when something that must hold does
// not. Two programs run them: fuzzer.cpp (libFuzzer, `scripts/campaign fuzz`) and replay.cpp (the corpora once more, in
// CI).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fuzz {

void config(const uint8_t* data, size_t size);  ///< the environment, as the table of variables takes it
void identity(const uint8_t* data, size_t size);  ///< the launcher's environment, PMIx namespaces, hydra's names
void presence(const uint8_t* data, size_t size);  ///< what ranks publish
void pmi1(const uint8_t* data, size_t size);  ///< answers on hydra's descriptor
void faults(const uint8_t* data, size_t size);  ///< RESIL_FAULT
void claims(const uint8_t* data, size_t size);  ///< launch.json: whose reports a directory holds
void ring(const uint8_t* data, size_t size);  ///< another rank's ring, as the helper of a node reads it
void sweep(const uint8_t* data, size_t size);  ///< what killed jobs left in /dev/shm
void overlay(const uint8_t* data, size_t size);  ///< greetings and frames between nodes
void states(const uint8_t* data, size_t size);  ///< records of other nodes, up to the verdict on them
void mismatch(const uint8_t* data, size_t size);  ///< collectives and accounts of other nodes
void probes(const uint8_t* data, size_t size);  ///< what nodes say of the ways between them
void stacks(const uint8_t* data, size_t size);  ///< stacks of other nodes' threads
void recording(const uint8_t* data, size_t size);  ///< rank-NNNNN.rec
void unwind(const uint8_t* data, size_t size);  ///< unwind tables
void symbols(const uint8_t* data, size_t size);  ///< dynamic symbol tables
void datatype(const uint8_t* data, size_t size);  ///< trees of datatype constructors

struct Target {
  const char* name;
  void (*run)(const uint8_t* data, size_t size);
};

inline constexpr Target kTargets[] = {{"config", config},   {"identity", identity},   {"presence", presence},
                                      {"pmi1", pmi1},       {"faults", faults},       {"claims", claims},
                                      {"ring", ring},       {"sweep", sweep},         {"overlay", overlay},
                                      {"states", states},   {"mismatch", mismatch},   {"stacks", stacks},
                                      {"probes", probes},   {"recording", recording}, {"unwind", unwind},
                                      {"symbols", symbols}, {"datatype", datatype}};

inline const Target* find_target(const char* name) {
  for (const Target& target : kTargets)
    if (name != nullptr && strcmp(target.name, name) == 0) return &target;
  return nullptr;
}

/// What must hold for every input.
inline void must(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "fuzz: does not hold: %s\n", what);
  abort();
}

/// Does text end within its room?
inline void must_end(const char* text, size_t room, const char* what) { must(memchr(text, 0, room) != nullptr, what); }

/// The input, piece by piece; zeros behind its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), left_(size) {}

  size_t left() const { return left_; }
  const uint8_t* data() const { return at_; }

  template <class T>
  T get() {
    T value{};
    take(&value, sizeof(T));
    return value;
  }
  /// Up to `bytes`; returns how many.
  size_t take(void* to, size_t bytes) {
    const size_t some = bytes < left_ ? bytes : left_;
    if (some != 0) memcpy(to, at_, some);
    at_ += some, left_ -= some;
    return some;
  }
  void skip(size_t bytes) {
    const size_t some = bytes < left_ ? bytes : left_;
    at_ += some, left_ -= some;
  }

 private:
  const uint8_t* at_;
  size_t left_;
};

}  // namespace fuzz
