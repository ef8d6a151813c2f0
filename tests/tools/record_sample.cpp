// SPDX-License-Identifier: Apache-2.0
//
// Writes the recording of one rank as a script on standard input says, with the library's own writer: what the tests of
// the offline tool read. One command a line:
//   rank DIRECTORY RANK SIZE LAUNCH PROGRAM CREATED    begins
//   stream S SITE                                      SITE: OBJECT+0xOFFSET, or - for none
//   call S NAME [site=SITE] [comm=HEX] [peer=N] [tag=N] [bytes=N] [step=N] [count=N] [flags=N] [in=TYPE:HEX]
//   [out=TYPE:HEX] poll S NAME ... ; complete S ORDINAL [TYPE:HEX] [source=N tag=N] [flags=N] [bytes=N] [stream=N]
//   outcome S [flag=N] [index=N] [source=N tag=N] [bytes=N] ; indices S N... ; logged S KIND NAME TYPE:HEX ; time S
//   CLOCK TYPE:HEX halo S STEPS NEIGHBOURS                            a solver's steps: exchange, a sum, now and then
//   polls flush ; close S ; abort ; finish ; (end of input without one of them: as after a kill)
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "checksum/record/writer.h"
#include "shim/ring/ring_format.h"

using namespace resil::record;

namespace {

std::vector<std::pair<std::string, uint64_t>> sites;  // address: index + 1
std::vector<std::string> calls;
std::map<std::string, Stream*> streams;
using Words = std::map<std::string, std::string>;

[[noreturn]] void stop(const std::string& why) {
  std::cerr << "record_sample: " << why << "\n";
  std::exit(1);
}

uint64_t site_address(const std::string& text) {
  const size_t plus = text.rfind('+');
  if (plus == std::string::npos) return 0;
  const std::pair<std::string, uint64_t> site{text.substr(0, plus), std::stoull(text.substr(plus + 1), nullptr, 16)};
  for (size_t i = 0; i < sites.size(); ++i)
    if (sites[i] == site) return i + 1;
  sites.reserve(1000);
  sites.push_back(site);
  return sites.size();
}

uint16_t call_id(const std::string& name) {
  for (size_t i = 0; i < calls.size(); ++i)
    if (calls[i] == name) return static_cast<uint16_t>(i);
  calls.reserve(1000);
  calls.push_back(name);
  return static_cast<uint16_t>(calls.size() - 1);
}

bool site_name(uint64_t address, SiteName* name) {
  if (address == 0) return false;
  *name = {sites[address - 1].first.c_str(), sites[address - 1].second};
  return true;
}

const Names names = {site_name, [](const SiteName&) -> uint64_t { return 0; },
                     [](uint16_t call) { return calls[call].c_str(); }, [](const char*) { return kUnknownCall; }};

uint64_t value_of(const std::string& text, ValueType* type) {
  static const char* const types[] = {"none", "digest", "double", "float", "signed", "unsigned", "bytes"};
  const size_t colon = text.find(':');
  for (unsigned i = 0; i < 7; ++i)
    if (text.substr(0, colon) == types[i]) *type = static_cast<ValueType>(i);
  return colon == std::string::npos ? 0 : std::stoull(text.substr(colon + 1), nullptr, 16);
}

long long number(const Words& words, const std::string& key, long long otherwise) {
  const auto found = words.find(key);
  return found == words.end() ? otherwise : std::stoll(found->second);
}

CallRecord record_of(const std::string& name, const Words& words) {
  CallRecord call = {};
  call.call = call_id(name);
  call.site = words.count("site") != 0 ? site_address(words.at("site")) : 0;
  call.comm = words.count("comm") != 0 ? std::stoull(words.at("comm"), nullptr, 16) : 0;
  call.peer = static_cast<int32_t>(number(words, "peer", resil::ring::kNoPeer));
  call.tag = static_cast<int32_t>(number(words, "tag", resil::ring::kNoTag));
  call.bytes = static_cast<uint64_t>(number(words, "bytes", 0));
  call.step = static_cast<uint32_t>(number(words, "step", 0));
  call.count = static_cast<uint32_t>(number(words, "count", 1));
  call.flags = static_cast<uint16_t>(number(words, "flags", 0));
  if (words.count("in") != 0) call.in = value_of(words.at("in"), &call.in_type);
  if (words.count("out") != 0) call.out = value_of(words.at("out"), &call.out_type);
  return call;
}

void halo(Stream* stream, unsigned steps, unsigned neighbours) {
  std::mt19937_64 random(1);
  const uint64_t irecv = site_address("/opt/app+0x100"), isend = site_address("/opt/app+0x200"),
                 wait = site_address("/opt/app+0x300"), sum = site_address("/opt/app+0x400");
  for (unsigned step = 1; step <= steps; ++step) {
    CallRecord call = {};
    call.comm = 0x1234567812345678;
    call.count = 1;
    call.step = step;
    call.flags = kCallStarted;
    for (unsigned i = 0; i < neighbours; ++i) {
      call.call = call_id("MPI_Irecv"), call.site = irecv, call.peer = static_cast<int32_t>(3 + 7 * i);
      call.tag = static_cast<int32_t>(i), call.bytes = 8 * (1000 + 100 * i);
      stream->call(call);
    }
    const uint64_t first = stream->next_ordinal() - neighbours;
    call.in_type = ValueType::kDigest;
    for (unsigned i = 0; i < neighbours; ++i) {
      call.call = call_id("MPI_Isend"), call.site = isend, call.peer = static_cast<int32_t>(3 + 7 * i);
      call.tag = static_cast<int32_t>(i), call.bytes = 8 * (1000 + 100 * i), call.in = random();
      stream->call(call);
    }
    call = {};
    call.site = wait, call.call = call_id("MPI_Waitall"), call.step = step, call.count = 1;
    call.peer = resil::ring::kNoPeer, call.tag = resil::ring::kNoTag;
    stream->call(call);
    for (unsigned i = 0; i < neighbours; ++i) {
      Completion completion = {};
      completion.ordinal = first + i, completion.type = ValueType::kDigest, completion.digest = random();
      stream->completion(completion);
    }
    call.site = sum, call.call = call_id("MPI_Allreduce"), call.comm = 0x1234567812345678, call.bytes = 8;
    call.in_type = call.out_type = ValueType::kDouble, call.in = random(), call.out = random();
    stream->call(call);
  }
}

void obey(const std::string& command, std::istringstream& line) {
  std::string name, word, site;
  std::vector<std::string> plain;
  Words words;
  if (command == "rank") {
    std::string directory, launch, program;
    Identity identity = {};
    line >> directory >> identity.rank >> identity.world_size >> launch >> program >> identity.created;
    snprintf(identity.launch, sizeof(identity.launch), "%s", launch.c_str());
    snprintf(identity.program, sizeof(identity.program), "%s", program.c_str());
    snprintf(identity.build, sizeof(identity.build), "0123456789abcdef");
    snprintf(identity.host, sizeof(identity.host), "node-%d", identity.rank);
    snprintf(identity.mpi, sizeof(identity.mpi), "Some MPI 4.1");
    snprintf(identity.reduce, sizeof(identity.reduce), "order");
    Problem problem;
    if (!directory_lock(directory.c_str(), identity, &problem) ||
        !writer_open(directory.c_str(), identity, names, &problem))
      stop(problem.text);
    return;
  }
  if (command == "flush") return writer_flush(false);
  if (command == "abort" || command == "finish")
    return writer_close(command == "abort" ? Ending::kAborted : Ending::kFinished);
  line >> name;
  if (command == "stream") {
    line >> site;
    streams[name] = stream_open(site_address(site));
    return;
  }
  Stream* stream = streams.at(name);
  while (line >> word) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) plain.push_back(word);
    else words[word.substr(0, equals)] = word.substr(equals + 1);
  }
  if (command == "close") {
    stream_close(stream);
  } else if (command == "halo") {
    halo(stream, static_cast<unsigned>(std::stoul(plain.at(0))), static_cast<unsigned>(std::stoul(plain.at(1))));
  } else if (command == "call") {
    stream->call(record_of(plain.at(0), words));
  } else if (command == "poll") {
    stream->poll(record_of(plain.at(0), words));
  } else if (command == "complete") {
    Completion completion = {};
    completion.ordinal = std::stoull(plain.at(0));
    if (plain.size() > 1) completion.digest = value_of(plain[1], &completion.type);
    completion.source = static_cast<int32_t>(number(words, "source", 0));
    completion.tag = static_cast<int32_t>(number(words, "tag", 0));
    completion.bytes = static_cast<uint64_t>(number(words, "bytes", 0));
    completion.stream = static_cast<uint32_t>(number(words, "stream", 0));
    completion.flags =
        static_cast<uint8_t>(number(words, "flags", 0) | (words.count("source") != 0 ? kCompletionMatch : 0) |
                             (words.count("bytes") != 0 ? kCompletionBytes : 0));
    stream->completion(completion);
  } else if (command == "outcome") {
    Outcome outcome = {};
    outcome.flag = number(words, "flag", 0) != 0;
    outcome.index = static_cast<int32_t>(number(words, "index", 0));
    outcome.source = static_cast<int32_t>(number(words, "source", 0));
    outcome.tag = static_cast<int32_t>(number(words, "tag", 0));
    outcome.bytes = static_cast<uint64_t>(number(words, "bytes", 0));
    outcome.what = static_cast<uint8_t>(
        (words.count("flag") != 0 ? kOutcomeFlag : 0) | (words.count("index") != 0 ? kOutcomeIndex : 0) |
        (words.count("source") != 0 ? kOutcomeMatch : 0) | (words.count("bytes") != 0 ? kOutcomeBytes : 0));
    stream->outcome(outcome);
  } else if (command == "indices") {
    std::vector<int32_t> list;
    for (const std::string& index : plain) list.push_back(std::stoi(index));
    stream->indices(list.data(), static_cast<uint32_t>(list.size()));
  } else if (command == "logged") {
    ValueType type = ValueType::kNone;
    const uint64_t bits = value_of(plain.at(2), &type);
    stream->logged(static_cast<LoggedKind>(std::stoi(plain.at(0))), plain.at(1).c_str(), type, bits);
  } else if (command == "time") {
    ValueType type = ValueType::kNone;
    const uint64_t bits = value_of(plain.at(1), &type);
    stream->time(static_cast<uint8_t>(std::stoi(plain.at(0))), bits);
  } else {
    stop("unknown command " + command);
  }
}

}  // namespace

int main() {
  std::string text, command;
  while (std::getline(std::cin, text)) {
    std::istringstream line(text);
    if (line >> command) obey(command, line);
  }
  std::cout << "done\n" << std::flush;
  _exit(0);
}
