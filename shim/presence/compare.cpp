// SPDX-License-Identifier: Apache-2.0
//
// See compare.h. May touch nothing but its arguments.
#include "shim/presence/compare.h"

#include <cstdio>
#include <cstring>

#include "shim/messages.h"

namespace resil {
namespace {

/// Copies one field; '|' separates them and is replaced.
void add_field(Text& text, const char* value) {
  char clean[128];
  Text(clean, sizeof clean).add(value);
  for (char* at = clean; *at; ++at)
    if (*at == '|') *at = '_';
  text.add(clean).add("|");
}

bool take_text(Slice* rest, char* field, size_t size) {
  Slice part;
  if (!next_part(rest, '|', &part) || part.size >= size) return false;
  Text(field, size).add(part);
  return true;
}

bool take_number(Slice* rest, int64_t* number) {
  Slice part;
  return next_part(rest, '|', &part) && parse_integer(part, number);
}

bool same(const PresenceValue& left, const PresenceValue& right) {
  return strcmp(left.version, right.version) == 0 && strcmp(left.modes, right.modes) == 0 &&
         left.settings == right.settings;
}

Text& add_ranks(Text& line, const RankList& ranks) {
  return line.add(ranks.count() == 1 ? "rank " : "ranks ").add(ranks.text());
}

}  // namespace

void RankList::close_range() {
  if (!count_ || full_) return;
  constexpr size_t kTail = 5;  // ",..." and the zero byte
  char range[32];
  Text text(range, sizeof range);
  text.add(length_ ? "," : "").add(int64_t{first_});
  if (last_ > first_) text.add(last_ == first_ + 1 ? "," : "-").add(int64_t{last_});
  if (length_ + text.length() + kTail > sizeof text_) {
    full_ = true;
    strcpy(text_ + length_, ",...");
    return;
  }
  strcpy(text_ + length_, range);
}

void RankList::add(int rank) {
  if (count_ && rank == last_ + 1) {
    last_ = rank;
  } else {
    if (count_ && !full_) length_ = strlen(text_);
    first_ = last_ = rank;
  }
  ++count_;
  close_range();
}

void presence_format(const PresenceValue& value, char* text, size_t size) {
  Text out(text, size);
  out.add("3|");
  add_field(out, value.version);
  add_field(out, value.modes);
  out.add(static_cast<int64_t>(value.settings)).add("|").add(int64_t{value.flags}).add("|").add(int64_t{value.pid});
  out.add("|").add(static_cast<int64_t>(value.nonce)).add("|");
  out.add(static_cast<int64_t>(value.claim)).add("|");
  add_field(out, value.place);
  out.add(value.host);
}

bool presence_parse(const char* text, PresenceValue* value) {
  Slice rest = slice_of(text), form;
  int64_t settings, flags, pid, nonce, claim;
  if (!next_part(&rest, '|', &form) || !(form == "3")) return false;
  if (!take_text(&rest, value->version, sizeof value->version) ||
      !take_text(&rest, value->modes, sizeof value->modes) || !take_number(&rest, &settings) ||
      !take_number(&rest, &flags) || !take_number(&rest, &pid) || !take_number(&rest, &nonce) ||
      !take_number(&rest, &claim) || !take_text(&rest, value->place, sizeof value->place) ||
      !take_text(&rest, value->host, sizeof value->host))
    return false;
  value->settings = static_cast<uint64_t>(settings);
  value->flags = static_cast<uint32_t>(flags);
  value->pid = static_cast<int>(pid);
  value->nonce = static_cast<uint64_t>(nonce);
  value->claim = static_cast<uint64_t>(claim);
  return true;
}

void PresenceComparison::add(int rank, const char* text) {
  if (!text) return missing_.add(rank);
  if (first_present_ < 0) first_present_ = rank;
  PresenceValue value{};
  bool known = presence_parse(text, &value);
  if (known && (value.flags & kNoFiles)) without_files_.add(rank);
  for (int i = 0; i < group_count_; ++i)
    if (groups_[i].known == known && (!known || same(groups_[i].value, value))) return groups_[i].ranks.add(rank);
  if (group_count_ == kGroups) {
    other_groups_ = true;
    return;
  }
  Group& group = groups_[group_count_++];
  group.value = value;
  group.known = known;
  group.ranks.add(rank);
}

void PresenceComparison::describe_difference(char* line, size_t size) const {
  // The largest group is what the job is; the others are named. Of equal groups the one with the lowest rank wins.
  int main = 0;
  for (int i = 1; i < group_count_; ++i)
    if (groups_[i].ranks.count() > groups_[main].ranks.count()) main = i;
  auto add_group = [](Text& text, const Group& group) {
    if (!group.known) {
      text.add(" another version of resil");
      return;
    }
    text.add(" resil ").add(group.value.version).add(", RESIL_MODE=").add(group.value.modes);
  };
  line[0] = 0;
  if (equal()) return;
  char list[560];
  Text text(list, sizeof list);
  const Group& base = groups_[main];
  for (int i = 0; i < group_count_; ++i) {
    if (i == main) continue;
    const Group& group = groups_[i];
    add_ranks(text.add(" "), group.ranks).add(group.ranks.count() == 1 ? " has" : " have");
    bool settings_only = group.known && base.known && strcmp(group.value.version, base.value.version) == 0 &&
                         strcmp(group.value.modes, base.value.modes) == 0;
    if (settings_only) text.add(" other values of RESIL_ variables;");
    else add_group(text, group), text.add(";");
  }
  if (other_groups_) text.add(" more ranks have yet others;");
  add_ranks(text.add(" "), base.ranks).add(base.ranks.count() == 1 ? " has" : " have");
  add_group(text, base);
  snprintf(line, size, messages::core::ranks_disagree, list);
}

void PresenceComparison::describe_missing(const LaunchIdentity& identity, int size, bool files, char* line,
                                          size_t line_size) const {
  line[0] = 0;
  if (all_present()) return;
  const bool elsewhere = files && identity.local_size != size;  // where they may be preloaded, and nobody here can know
  const char* option = "set LD_PRELOAD=.../libresil.so where the launcher starts each rank";
  if (strcmp(identity.launcher, "mpirun of Open MPI") == 0)
    option = "mpirun -x LD_PRELOAD=.../libresil.so ... (before each ':' part)";
  else if (strcmp(identity.launcher, "hydra") == 0) option = "mpirun -genv LD_PRELOAD .../libresil.so ...";
  else if (strcmp(identity.launcher, "srun") == 0 || strcmp(identity.launcher, "PMIx") == 0)
    option = "srun --export=ALL,LD_PRELOAD=.../libresil.so ...";
  const bool one = missing_.count() == 1;
  snprintf(line, line_size, messages::core::ranks_missing, one ? "" : "s", missing_.text(), size, one ? "s" : "",
           elsewhere ? messages::core::or_elsewhere : "", elsewhere ? messages::core::share_directory : "", option);
}

}  // namespace resil
