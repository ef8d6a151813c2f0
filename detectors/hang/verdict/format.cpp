// SPDX-License-Identifier: Apache-2.0
//
// See format.h. A placeholder stands in braces: {rank}, {n0} … are numbers, {s0} … times, {ranks} and {others} sets
// with the word "rank" or "ranks" before them, all others what the table below says.

#include "detectors/hang/verdict/format.h"

#include <cinttypes>
#include <cstring>
#include <initializer_list>
#include <string_view>

#include "detectors/hang/slots/layout.h"
#include "detectors/hang/slots/signature.h"
#include "shim/model/datatype/signature.h"

namespace resil::hang {

namespace {

enum class Where : uint8_t { kSentence, kAction, kPlace, kEvidence, kLine, kNote };

struct Row {
  Where where;
  const char* text;
};
constexpr Row kCatalogue[] = {
#define MESSAGE(id, where, text) {Where::where, text},
#include "detectors/hang/verdict/messages.inc"
#undef MESSAGE
};

const Row& row_of(const Statement& statement) { return kCatalogue[static_cast<size_t>(statement.id)]; }

const char* known(const char* name, const char* otherwise) {
  return name != nullptr && name[0] != 0 ? name : otherwise;
}

constexpr const char* kOperators[] = {"no operator", "MPI_MAX",    "MPI_MIN",    "MPI_SUM",     "MPI_PROD",
                                      "MPI_LAND",    "MPI_BAND",   "MPI_LOR",    "MPI_BOR",     "MPI_LXOR",
                                      "MPI_BXOR",    "MPI_MAXLOC", "MPI_MINLOC", "MPI_REPLACE", "MPI_NO_OP"};

/// One statement on its way into words.
class Formatter {
 public:
  Formatter(Text& text, const Statement& statement, const Names& names) : t_(text), s_(statement), names_(names) {}

  void format(const char* text) {
    for (; *text != 0; ++text) {
      if (*text != '{') {
        t_.add(*text);
        continue;
      }
      const char* end = strchr(text, '}');
      const std::string_view inside = {text + 1, static_cast<size_t>(end - text - 1)};
      const size_t question = inside.find('?');
      if (question == std::string_view::npos) {
        put(inside);
      } else {
        const size_t bar = inside.find('|');
        const char *one = text + 2 + question, *many = text + 2 + bar;
        if (count({inside.data(), question}) == 1) add({one, bar - question - 1});
        else add({many, static_cast<size_t>(end - many)});
      }
      text = end;
    }
  }

 private:
  void add(std::string_view text) {
    for (const char c : text) t_.add(c);
  }
  const char* name(NameKind kind, int32_t rank, uint64_t value) const {
    return names_.name != nullptr ? names_.name(names_.self, kind, rank, value) : nullptr;
  }

  uint64_t count(std::string_view of) const {
    return of == "ranks" ? s_.ranks.total : of == "others" ? s_.others.total : s_.n[of[1] - '0'];
  }

  void put(std::string_view what) {
    if (what.size() == 2 && what[0] == 'n') t_.add("%" PRIu64, s_.n[what[1] - '0']);
    else if (what.size() == 2 && what[0] == 's') t_.add_seconds(s_.seconds[what[1] - '0']);
    else if (what == "rank") t_.add("%d", s_.rank);
    else if (what == "ranks" || what == "others") ranks(what == "ranks" ? s_.ranks : s_.others);
    else if (what == "ids") add_ranks(t_, s_.ranks);
    else if (what == "comm") comm(s_.comm);
    else if (what == "tag") t_.add("%d", static_cast<int>(static_cast<int64_t>(s_.n[2])));
    else if (what == "hex") t_.add("%016" PRIx64, s_.comm);
    else if (what == "call") call(s_.call);
    else if (what == "for") awaited_call(s_.wait.part);
    else if (what == "peer") t_.add("%d", s_.wait.part.peer);
    else if (what == "wait") wait();
    else if (what == "age") t_.add_seconds(s_.wait.seconds);
    else if (what == "site") site(" at ");
    else if (what == "where") site(" ");
    else if (what == "collective") collective();
    else if (what == "host") t_.add_name(known(name(NameKind::kHost, s_.rank, 0), "?"), 120);
    else if (what == "hosts") hosts();
    else if (what == "last") t_.add_name(known(name(NameKind::kLast, s_.rank, 0), "?"), 120);
    else if (what == "place") place();
    else if (what == "nodes") nodes();
    else if (what == "type2" || what == "type3") type(static_cast<uint32_t>(s_.n[what[4] - '0']));
    else if (what == "sig1" || what == "sig2") signature(s_.n[what[3] - '0']);
    else if (what == "chance") t_.add("%.2g", s_.seconds[2]);
    else if (what == "char") t_.add(s_.n[1] != 0 ? static_cast<char>(s_.n[1]) : '?');
    else if (what == "device") add_device(t_, s_.device);
  }

  void ranks(const RankSet& set) {
    t_.add("%s", set.total == 1 ? "rank " : "ranks ");
    add_ranks(t_, set);
  }

  void comm(uint64_t id) { t_.add_name(comm_name(names_, id), 80); }

  void call(uint16_t id) {
    t_.add_name(known(names_.call != nullptr ? names_.call(names_.self, id) : nullptr, "an MPI call"), 48);
  }

  void site(const char* before) {
    const char* place = s_.wait.site != 0 ? name(NameKind::kSite, s_.rank, s_.wait.site) : nullptr;
    if (place == nullptr || place[0] == 0) return;
    t_.add("%s", before);
    t_.add_name(place, 96);
  }

  void collective() {
    if (s_.comm == 0) return;
    t_.add(", collective %" PRIu64 " on ", s_.n[2]);
    comm(s_.comm);
  }

  void hosts() {
    bool first = true;
    for (uint32_t i = 0; i < s_.ranks.count; ++i)
      for (int32_t rank = s_.ranks.ranges[i].first; rank <= s_.ranks.ranges[i].last; ++rank) {
        t_.add("%srank %d on ", first ? "" : "; ", rank);
        t_.add_name(known(name(NameKind::kHost, rank, 0), "?"), 120);
        first = false;
      }
  }

  /// " at lmp+0x1578 to 0x15a0"; nothing where that is not known.
  void place() {
    const char* at = name(NameKind::kPlace, s_.rank, 0);
    if (at == nullptr || at[0] == 0) return;
    t_.add(' ');
    t_.add_name(at, 120);
  }

  void nodes() {
    constexpr uint32_t kMost = 4;
    uint32_t shown = 0;
    for (uint32_t i = 0; i < s_.others.count; ++i)
      for (int32_t node = s_.others.ranges[i].first; node <= s_.others.ranges[i].last && shown < kMost; ++node) {
        t_.add("%snode %d", shown == 0 ? "" : s_.others.total == 2 ? " and " : ", ", node);
        ++shown;
        if (const char* place = name(NameKind::kNode, -1, static_cast<uint64_t>(node));
            place != nullptr && place[0] != 0)
          t_.add(" (%s)", place);
      }
    if (s_.others.total > shown) t_.add(" and %u more", s_.others.total - shown);
  }

  void peer(int32_t of) {
    if (of == ring::kAnySource) t_.add("any rank");
    else if (of == s_.wait.rank) t_.add("itself");
    else t_.add("rank %d", of);
  }

  /// The tag is told where it is part of what must be the same.
  void awaited_call(const Part& part) {
    call(part.call);
    if (part.kind != PartKind::kToken || part.tag > kFirstLeaderToken) return;
    t_.add(" with tag %d", (part.tag > kFirstGroupToken ? kFirstLeaderToken : kFirstGroupToken) - part.tag);
  }

  /// "MPI_Recv from rank 0, tag 7, on MPI_COMM_WORLD", "call 17 of MPI_Allreduce on …", "MPI_Waitall for …"
  void wait() {
    const CallWait& of = s_.wait;
    const Part& part = of.part;
    if (part.kind == PartKind::kToken || part.kind == PartKind::kLock) {
      call(of.call);
      t_.add(part.kind == PartKind::kLock ? part.tag != 0 ? " for the exclusive lock of " : " for a shared lock of "
                                          : " for ");
      if (part.kind == PartKind::kToken) {
        awaited_call(part);
        t_.add(" of ");
      }
      peer(part.peer);
      t_.add(", on ");
      return comm(part.comm);
    }
    const bool by_request = part.call != of.call && part.kind != PartKind::kSink;
    if (by_request) {
      call(of.call);
      t_.add(" for ");
    }
    if (part.kind == PartKind::kCollective)
      t_.add("%s %" PRIu64 " of ", (part.flags & kPersistentPart) != 0 ? "start" : "call", part.sequence);
    call(by_request ? part.call : of.call);
    switch (part.kind) {
      case PartKind::kCollective:
        t_.add(" on ");
        comm(part.comm);
        return started(by_request);
      case PartKind::kSend: t_.add(" of %" PRIu64 " byte%s to ", part.bytes, part.bytes == 1 ? "" : "s"); break;
      case PartKind::kReceive:
      case PartKind::kProbe: t_.add(" from "); break;
      default: return;
    }
    peer(part.peer);
    if (part.tag == ring::kAnyTag) t_.add(", any tag");
    else if (part.tag != kOtherTags) t_.add(", tag %d", part.tag);
    t_.add(", on ");
    comm(part.comm);
    started(by_request);
  }

  /// Where the request was, that the call waits for.
  void started(bool by_request) {
    const uint64_t address = s_.wait.part.site;
    const char* place = by_request && address != 0 ? name(NameKind::kSite, s_.wait.rank, address) : nullptr;
    if (place == nullptr || place[0] == 0) return;
    t_.add(" (started at ");
    t_.add_name(place, 96);
    t_.add(')');
  }

  /// "4-byte signed integers"
  void type(uint32_t of) {
    if (const uint32_t width = signature_width(of); width != 0) t_.add("%u-byte ", width);
    t_.add("%s", signature_words(of));
  }

  /// "MPI_Reduce, MPI_SUM, root 0, 8 bytes"
  void signature(uint64_t word) {
    const Signature of = signature_unpack(word);
    call(of.call);
    if (of.op != OpKind::kNone)
      t_.add(", %s", of.op < OpKind::kUser ? kOperators[static_cast<unsigned>(of.op)] : "a user-defined operator");
    if (of.root != kNoRoot) t_.add(", root %u", of.root - 1);
    if (of.bytes >= kExactBytes && of.bytes != kBytesNotCompared) t_.add(", 128 MiB or more");
    else if (of.bytes != kBytesNotCompared && of.bytes != 0) t_.add(", %" PRIu64 " bytes", of.bytes);
  }

  Text& t_;
  const Statement& s_;
  const Names& names_;
};

void format(Text& text, const Statement& statement, const Names& names, bool sentence) {
  const size_t begin = text.used;
  Formatter(text, statement, names).format(row_of(statement).text);
  char& first = text.room[begin];
  if (sentence && first >= 'a' && first <= 'z') first = static_cast<char>(first - 'a' + 'A');
}

}  // namespace

void explain(const Verdict& verdict, const Names& names, Explanation* explanation) {
  Text message(explanation->message, sizeof(explanation->message));
  Text evidence(explanation->evidence, sizeof(explanation->evidence));
  for (const Where where : {Where::kSentence, Where::kAction})
    for (uint32_t i = 0; i < verdict.statement_count; ++i) {
      const Statement& statement = verdict.statements[i];
      if (row_of(statement).where != where) continue;
      if (message.used != 0) message.add(' ');
      if (where == Where::kAction) message.add("To do: ");
      format(message, statement, names, where == Where::kSentence);
    }
  for (const Where where : {Where::kPlace, Where::kEvidence})
    for (uint32_t i = 0; i < verdict.statement_count; ++i)
      if (row_of(verdict.statements[i]).where == where) {
        format(evidence, verdict.statements[i], names, false);
        evidence.add('\n');
      }
}

void explain(const Statement& statement, const Names& names, char* text, size_t bytes) {
  Text line(text, bytes);
  format(line, statement, names, false);
}

void add_ranks(Text& text, const RankSet& ranks) {
  for (uint32_t i = 0; i < ranks.count; ++i) {
    text.add("%s%d", i == 0 ? "" : ",", ranks.ranges[i].first);
    if (ranks.ranges[i].last != ranks.ranges[i].first) text.add("-%d", ranks.ranges[i].last);
  }
  if (ranks.named < ranks.total) text.add("%sand %u more", ranks.count != 0 ? " " : "", ranks.total - ranks.named);
}

const char* comm_name(const Names& names, uint64_t id) {
  // Nobody who answered knows it: all of its members are gone, or it is one of too many.
  return known(names.name != nullptr ? names.name(names.self, NameKind::kComm, -1, id) : nullptr,
               "a communicator that no rank knows any more");
}

const char* activity_name(RankActivity activity) {
  constexpr const char* kNames[] = {"unknown", "computing", "blocked", "polling", "finished", "gone", "stopped"};
  const auto index = static_cast<unsigned>(activity);
  return index < sizeof(kNames) / sizeof(kNames[0]) ? kNames[index] : "unknown";
}

const char* confidence_name(Confidence of) {
  constexpr const char* kNames[] = {"proved", "verified", "suspected"};
  return kNames[static_cast<unsigned>(of)];
}

const char* class_name(HangClass of) {
  constexpr const char* kNames[] = {"none",
                                    "deadlock",
                                    "collective_mismatch",
                                    "missing_rank",
                                    "rank_gone",
                                    "rank_stopped",
                                    "unmatched_message",
                                    "inside_mpi",
                                    "computation",
                                    "unreceived_messages",
                                    "message_mismatch",
                                    "node_silent",
                                    "no_progress",
                                    "moving"};
  const auto index = static_cast<unsigned>(of);
  return index < sizeof(kNames) / sizeof(kNames[0]) ? kNames[index] : "no_progress";
}

void add_device(Text& text, const DeviceSeen& device) {
  constexpr const char* kDone[] = {"", "; the device is not done", "; the device is done, the wait has not returned",
                                   "; it returned too early, resil waits for the device"};
  const auto done = static_cast<unsigned>(device.done);
  if (device.kind == DeviceWorkKind::kWait) {
    text.add("waits for its device in ");
    text.add_name(device.call, sizeof(device.call));
    text.add(" for ");
    text.add_seconds(static_cast<double>(device.age_ns) * 1e-9);
    text.add("%s", kDone[done < sizeof(kDone) / sizeof(kDone[0]) ? done : 0]);
    return;
  }
  const bool down = device.kind == DeviceWorkKind::kCopyDown;
  text.add("the copy %s of a staged message of ", down ? "down" : "up");
  if (device.bytes >= 1u << 20 && device.bytes % (1u << 20) == 0) text.add("%" PRIu64 " MiB", device.bytes >> 20);
  else text.add("%" PRIu64 " bytes", device.bytes);
  if (device.peer >= 0) text.add(" %s rank %d", down ? "to" : "from", device.peer);
  if (device.tag >= 0) text.add(", tag %d", device.tag);
  text.add(" has been under way for ");
  text.add_seconds(static_cast<double>(device.age_ns) * 1e-9);
}

}  // namespace resil::hang
