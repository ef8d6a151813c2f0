// SPDX-License-Identifier: Apache-2.0
//
// What a rank publishes, and the verdict over what all ranks have published. Pure functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/config/config_parse.h"
#include "shim/presence/identity.h"

namespace resil {

/// Rank numbers as text, compressed: "2-5,7". Ranks must be added in ascending order. What does not fit ends in ",...".
class RankList {
 public:
  void add(int rank);
  int count() const { return count_; }
  const char* text() const { return text_; }

 private:
  void close_range();

  char text_[120] = "";
  size_t length_ = 0;  ///< of the finished ranges
  int first_ = 0, last_ = 0;  ///< the open range
  int count_ = 0;
  bool full_ = false;
};

/// Bits of PresenceValue::flags.
enum PresenceFlag : uint32_t { kNoFiles = 1 };  ///< this rank cannot write its files

struct PresenceValue {
  char version[24];  ///< of resil; must be equal
  char modes[56];  ///< "watch,checksum"; must be equal
  uint64_t settings;  ///< config_hash(); must be equal
  uint32_t flags;  ///< PresenceFlag
  int pid;
  char host[48];  ///< cut when longer
  uint64_t nonce;  ///< of the rank, see shim/presence/launch.h; 0: unknown
  uint64_t claim;  ///< of the report directory, see shim/report/directory.h; 0: none
  char place[112];  ///< its name
};

/// Text of up to 350 characters for presence_publish.
void presence_format(const PresenceValue& value, char* text, size_t size);
/// False: not of this form (another version of resil may write another form).
bool presence_parse(const char* text, PresenceValue* value);

/// Takes the values of all ranks, in ascending order of rank, and says what they allow.
class PresenceComparison {
 public:
  /// `value` null: not preloaded.
  void add(int rank, const char* value);
  /// The same with the signature that presence_collect wants; `context` is the comparison.
  static void visit(int rank, const char* value, void* context) {
    static_cast<PresenceComparison*>(context)->add(rank, value);
  }

  bool all_present() const { return missing_.count() == 0; }
  /// All that are present agree.
  bool equal() const { return group_count_ <= 1 && !other_groups_; }
  const RankList& missing() const { return missing_; }
  const RankList& without_files() const { return without_files_; }
  /// Lowest rank that is preloaded, -1 when none does.
  int first_present() const { return first_present_; }

  /// One line that names the ranks in the minority and what they have; for stop_configuration. "" when equal().
  void describe_difference(char* line, size_t size) const;
  /// One line that names the ranks that are not preloaded and how to preload them under this launcher; "" when there
  /// are none.
  /// `files`: they find each other by files in the report directory, which another node may not see.
  void describe_missing(const LaunchIdentity& identity, int size, bool files, char* line, size_t line_size) const;

 private:
  struct Group {
    PresenceValue value;
    bool known;  ///< value could be read
    RankList ranks;
  };
  static constexpr int kGroups = 6;

  Group groups_[kGroups];
  int group_count_ = 0;
  bool other_groups_ = false;
  int first_present_ = -1;
  RankList missing_, without_files_;
};

}  // namespace resil
