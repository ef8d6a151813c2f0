// SPDX-License-Identifier: Apache-2.0
//
// See collective_calls.h.

#include "collective_calls.h"

#include <cstring>

namespace unit {

namespace ring = resil::ring;
using resil::OpKind;

namespace {

size_t z(int value) { return static_cast<size_t>(value); }

std::vector<char> bytes(World& world, size_t count) {
  std::vector<char> data(count);
  for (char& byte : data) byte = static_cast<char>(world.random());
  return data;
}

/// One argument with a part for each partner: counts (elements), places (bytes), size of the buffer.
struct Layout {
  std::vector<int64_t> counts;
  std::vector<size_t> places;
  size_t size = 0;
};

Layout lay_out(World& world, const std::vector<int64_t>& counts, const Style& style) {
  Layout layout = {counts, std::vector<size_t>(counts.size()), 0};
  const size_t extent = extent_of(style.type);
  for (size_t i = 0; i < counts.size(); ++i) {
    if (style.vector || style.typed) layout.size += extent * (world.random() % 3);  // gaps
    layout.places[i] = layout.size;
    layout.size += extent * static_cast<size_t>(counts[i]);
  }
  layout.size += extent;
  return layout;
}

void describe(resil::DataArgument& side, const Layout& layout, const Style& style, std::vector<int>& counts,
              std::vector<int>& places, std::vector<int64_t>& wide, std::vector<uint64_t>& types, bool wide_places) {
  side.type = style.type;
  side.buffer = side.counts = side.types = side.displacements = nullptr;
  side.count = layout.counts.empty() ? 0 : layout.counts[0];
  if (!style.vector && !style.typed) return;
  side.count = -1;
  for (size_t i = 0; i < layout.counts.size(); ++i) {
    counts.push_back(static_cast<int>(layout.counts[i]));
    const size_t place = style.typed ? layout.places[i] : layout.places[i] / extent_of(style.type);
    places.push_back(static_cast<int>(place));
    wide.push_back(static_cast<int64_t>(place));
    types.push_back(style.type);
  }
  side.counts = counts.data();
  side.displacements = wide_places ? static_cast<const void*>(wide.data()) : places.data();
  if (style.typed) {
    side.types = types.data();
    side.type = 0xbad;
  }
}

void give(Args& args, const Layout& layout, const Style& style, bool wide = false) {
  describe(args.sending, layout, style, args.counts, args.places, args.wide_places, args.types, wide);
}
void take(Args& args, const Layout& layout, const Style& style, bool wide = false) {
  describe(args.receiving, layout, style, args.other_counts, args.other_places, args.other_wide_places,
           args.other_types, wide);
}

Call make(World&, Group& group, const std::string& name, const Style& style) {
  Call call = {name + (style.typed ? "w" : style.vector ? "v" : ""), &group, style.type, {}, {}, {}, {}};
  call.args.resize(group.members.size());
  return call;
}

/// counts[i][j]: elements from member i to member j.
std::vector<std::vector<int64_t>> amounts(World& world, size_t from, size_t to, const Style& style) {
  const int64_t same = static_cast<int64_t>(world.random() % static_cast<unsigned>(style.most + 1));
  std::vector<std::vector<int64_t>> counts(from, std::vector<int64_t>(to, same));
  if (style.vector || style.typed)
    for (auto& row : counts)
      for (int64_t& count : row)
        count =
            world.random() % 4 == 0 ? 0 : static_cast<int64_t>(world.random() % static_cast<unsigned>(style.most + 1));
  return counts;
}

constexpr Style plain(const Style& style) { return {style.type, false, false, style.in_place, style.most}; }

}  // namespace

Call moving(World& world, Group& group, const std::string& name, const Style& style, int root) {
  Call call = make(world, group, name, style);
  const size_t n = group.members.size();
  auto counts = amounts(world, n, n, style);
  const bool all = name == "Allgather" || name == "Alltoall";
  for (size_t i = 0; i < n; ++i) {
    Args& args = call.args[i];
    args.root = all ? ring::kNoPeer : root;
    args.in_place = style.in_place && name != "Bcast" && (all || static_cast<int>(i) == root);
  }
  if (name == "Bcast") {
    for (size_t i = 0; i < n; ++i) {
      Args& args = call.args[i];
      args.send = args.receive = bytes(world, static_cast<size_t>(counts[0][0]) * extent_of(style.type) + 1);
      give(args, {{counts[0][0]}, {0}, 0}, plain(style));
      args.sending.buffer = args.receive.data();
      args.in_place = true;  // what moves is in `receive`
      if (i != z(root)) call.transfers.push_back({root, 0, static_cast<int>(i), 0, counts[0][0]});
    }
    return call;
  }
  std::vector<Layout> gives(n), takes(n);
  for (size_t i = 0; i < n; ++i) {
    std::vector<int64_t> out, in;
    for (size_t j = 0; j < n; ++j) {
      if (name == "Allgather" || name == "Gather") counts[i][j] = counts[i][0];
      if (name == "Alltoall" && style.in_place) counts[i][j] = counts[std::min(i, j)][std::max(i, j)];
      out.push_back(counts[i][j]);
    }
    for (size_t j = 0; j < n; ++j)
      in.push_back(name == "Allgather" || name == "Gather" ? counts[j][0]
                   : name == "Alltoall" && style.in_place  ? counts[std::min(i, j)][std::max(i, j)]
                                                           : counts[j][i]);
    gives[i] = lay_out(world, out, style);
    takes[i] = lay_out(world, in, style);
  }
  for (size_t i = 0; i < n; ++i) {
    Args& args = call.args[i];
    const bool at_root = static_cast<int>(i) == root;
    Layout single = {{counts[i][0]}, {0}, extent_of(style.type) * static_cast<size_t>(counts[i][0] + 1)};
    if (name == "Scatter")
      single = {{counts[z(root)][i]}, {0}, extent_of(style.type) * static_cast<size_t>(counts[z(root)][i] + 1)};
    memset(static_cast<void*>(&args.sending), 0xa7, sizeof(args.sending));
    memset(static_cast<void*>(&args.receiving), 0xa7, sizeof(args.receiving));
    args.sending.buffer = args.receiving.buffer = nullptr;
    const bool many_sends = name == "Alltoall" || (name == "Scatter" && at_root);
    const bool many_receives = name == "Alltoall" || name == "Allgather" || (name == "Gather" && at_root);
    gives[i] = many_sends ? gives[i] : single;
    takes[i] = many_receives ? takes[i] : single;
    if (name != "Scatter" || at_root) give(args, gives[i], many_sends ? style : plain(style));
    if (name != "Gather" || at_root) take(args, takes[i], many_receives ? style : plain(style));
    args.send = bytes(world, gives[i].size);
    args.receive = bytes(world, takes[i].size);
    if (args.in_place) {
      if (name == "Scatter") args.receiving.buffer = in_place();
      else
        args.sending.buffer = in_place(),
        args.sending.counts = args.sending.displacements = args.sending.types = nullptr;
    }
  }
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) {
      if ((name == "Gather" && j != z(root)) || (name == "Scatter" && i != z(root))) continue;
      const bool stays = i == j && style.in_place && name != "Alltoall";
      const size_t into = takes[j].places[name == "Scatter" ? 0 : i];
      size_t at = gives[i].places[name == "Scatter" || name == "Alltoall" ? j : 0];
      const int64_t count = name == "Scatter" || name == "Alltoall" ? gives[i].counts[j] : gives[i].counts[0];
      if (name == "Alltoall" && style.in_place) at = takes[i].places[j];
      if (name == "Allgather" && style.in_place) at = takes[i].places[i];
      if (!stays) call.transfers.push_back({static_cast<int>(i), at, static_cast<int>(j), into, count});
    }
  // Rooted and in place: the root's own part is not touched, and other ranks send from their own buffers.
  if (!all)
    for (Args& args : call.args) args.in_place = false;
  return call;
}

Call neighbouring(World& world, Group& group, const std::string& name, const Style& style,
                  const std::vector<std::pair<int, int>>& edges) {
  Call call = make(world, group, name, style);
  const bool all = name == "Neighbor_allgather";
  const size_t n = group.members.size();
  auto counts = amounts(world, n, n, style);
  for (auto& row : counts)
    if (all) std::fill(row.begin(), row.end(), row[0]);
  std::vector<std::vector<int64_t>> out(n), in(n);
  for (auto [from, to] : edges) {
    out[z(from)].push_back(counts[z(from)][z(to)]);
    in[z(to)].push_back(counts[z(from)][z(to)]);
  }
  std::vector<Layout> gives(n), takes(n);
  for (size_t i = 0; i < n; ++i) {
    Args& args = call.args[i];
    if (all) out[i] = {counts[i][0]};
    gives[i] = lay_out(world, out[i], all ? plain(style) : style);
    takes[i] = lay_out(world, in[i], style);
    give(args, gives[i], all ? plain(style) : style, style.typed);
    take(args, takes[i], style, style.typed);
    args.send = bytes(world, gives[i].size);
    args.receive = bytes(world, takes[i].size);
  }
  std::vector<size_t> sent(n), received(n);
  for (auto [from, to] : edges) {
    const size_t at = all ? 0 : sent[z(from)]++, into = received[z(to)]++;
    call.transfers.push_back(
        {from, gives[z(from)].places[at], to, takes[z(to)].places[into], gives[z(from)].counts[at]});
  }
  return call;
}

Call across(World& world, Group& group, const std::string& name, int first) {
  Style style;
  style.most = 20;
  Call call = make(world, group, name, style);
  const int n = static_cast<int>(group.members.size()), second = n - first;
  const int64_t count = static_cast<int64_t>(world.random() % 20) + 1;
  const size_t block = static_cast<size_t>(count) * extent_of(style.type);
  const bool all = name == "Allgather" || name == "Alltoall";
  for (int i = 0; i < n; ++i) {
    Args& args = call.args[z(i)];
    const int others = i < first ? second : first;
    args.root = all ? ring::kNoPeer : i == 0 ? ring::kRootSelf : i < first ? ring::kProcNull : 0;
    args.sending = args.receiving = {nullptr, count, style.type, nullptr, nullptr, nullptr};
    args.send = bytes(world, block * z(others));
    args.receive = bytes(world, block * z(others));
    if (name == "Bcast") {
      args.sending.buffer = args.receive.data();
      args.in_place = true;
    }
  }
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      if ((i < first) == (j < first)) continue;
      const size_t from = z(i < first ? i : i - first), to = z(j < first ? j : j - first);
      if (all) call.transfers.push_back({i, name == "Alltoall" ? to * block : 0, j, from * block, count});
      else if (i == 0 && name != "Gather")
        call.transfers.push_back({i, name == "Scatter" ? to * block : 0, j, 0, count});
      else if (j == 0 && name == "Gather") call.transfers.push_back({i, 0, j, from * block, count});
    }
  return call;
}

namespace {

template <class T>
T combine(OpKind op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    switch (op) {
      case OpKind::kSum: return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
      case OpKind::kProd: return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
      case OpKind::kBxor: return a ^ b;
      case OpKind::kBand: return a & b;
      case OpKind::kBor: return a | b;
      default: break;
    }
  }
  switch (op) {
    case OpKind::kMin: return a < b ? a : b;
    case OpKind::kMax: return a > b ? a : b;
    case OpKind::kProd: return a * b;
    default: return a + b;
  }
}

template <class T>
void fold(OpKind op, std::vector<char>& into, const std::vector<char>& from) {
  for (size_t at = 0; at + sizeof(T) <= into.size() && at + sizeof(T) <= from.size(); at += sizeof(T)) {
    T a, b;
    memcpy(&a, &into[at], sizeof(T));
    memcpy(&b, &from[at], sizeof(T));
    a = combine(op, a, b);
    memcpy(&into[at], &a, sizeof(T));
  }
}

void fold(uint64_t type, OpKind op, std::vector<char>& into, const std::vector<char>& from) {
  switch (type) {
    case kInt: return fold<int32_t>(op, into, from);
    case kUnsigned: return fold<uint32_t>(op, into, from);
    case kLong: return fold<int64_t>(op, into, from);
    case kByte: return fold<uint8_t>(op, into, from);
    case kFloat: return fold<float>(op, into, from);
    default: return fold<double>(op, into, from);
  }
}

}  // namespace

Call reducing(World& world, Group& group, const std::string& name, uint64_t type, OpKind op, bool in_place_wanted,
              int count, int root) {
  Style style;
  style.type = type;
  Call call = make(world, group, name, style);
  const size_t n = group.members.size(), width = size_of(type);
  const bool scatter = name == "Reduce_scatter", block = name == "Reduce_scatter_block";
  std::vector<int> counts;
  int total = 0;
  for (size_t i = 0; i < n; ++i) {
    counts.push_back(block ? count : static_cast<int>(world.random() % static_cast<unsigned>(count + 1)));
    total += counts.back();
  }
  if (!scatter && !block) total = count;
  for (size_t i = 0; i < n; ++i) {
    Args& args = call.args[i];
    args.root = name == "Reduce" ? root : ring::kNoPeer;
    args.op = static_cast<uint64_t>(op);
    args.in_place = in_place_wanted && (name != "Reduce" || static_cast<int>(i) == root);
    args.send = bytes(world, static_cast<size_t>(total) * width);
    if (type == kFloat || type == kDouble)
      for (size_t at = 0; at + width <= args.send.size(); at += width) {
        const double value = static_cast<double>(static_cast<int>(world.random() % 2001) - 1000) / 8;
        const float narrow = static_cast<float>(value);
        memcpy(&args.send[at], type == kFloat ? static_cast<const void*>(&narrow) : &value, width);
      }
    args.receive = args.in_place ? args.send : bytes(world, static_cast<size_t>(total) * width);
    args.sending = args.receiving = {nullptr, count, type, nullptr, nullptr, nullptr};
    if (scatter) {
      args.counts = counts;
      args.sending.counts = args.receiving.counts = args.counts.data();
      args.sending.count = args.receiving.count = -1;
    }
    if (args.in_place) args.sending.buffer = in_place();
  }
  call.compute = [=](Call& of) {
    std::vector<std::vector<char>> given;
    for (const Args& args : of.args) given.push_back(args.in_place ? args.receive : args.send);
    std::vector<char> sum = given[0], before;
    if (name == "Scan" || name == "Exscan") {
      for (size_t i = 0; i < n; ++i) {
        if (i > 0) before = sum, fold(type, op, sum, given[i]);
        if (name == "Scan") of.args[i].receive = sum;
        else if (i > 0) of.args[i].receive = before;
      }
      return;
    }
    for (size_t i = 1; i < n; ++i) fold(type, op, sum, given[i]);
    size_t at = 0;
    for (size_t i = 0; i < n; ++i) {
      if (scatter || block) {
        const size_t now = static_cast<size_t>(block ? count : counts[i]) * width;
        std::copy(sum.begin() + static_cast<long>(at), sum.begin() + static_cast<long>(at + now),
                  of.args[i].receive.begin());
        at += now;
      } else if (name == "Allreduce" || static_cast<int>(i) == root) {
        of.args[i].receive = sum;
      }
    }
  };
  return call;
}

}  // namespace unit
