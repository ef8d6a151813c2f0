// SPDX-License-Identifier: Apache-2.0
//
// What the dump says about the ring, in good and in damaged state, and the small parts below it.
#include <gnu/libc-version.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <random>

#include "check.h"
#include "detectors/dump/dump.h"
#include "dump_fixture.h"
#include "shim/base/safe_text.h"
#include "shim/runtime/stacks/cfi_expression.h"
#include "shim/runtime/stacks/memory.h"
#include "shim/runtime/stacks/symbols.h"

using namespace fixture;
using namespace resil;

namespace {

/// The dump of a process whose ring `prepare` has filled.
std::string dump_with(const std::function<void()>& prepare, std::string* errors = nullptr) {
  Directory directory;
  const int status = in_child(
      [&] {
        attach(directory.path, 0);
        module().before_init();
        module().after_init();
        prepare();
        dump_now("a test");
        return 0;
      },
      errors);
  CHECK(status == 0);
  return read_file(directory.path + "/dump-00003-0.txt");
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

template <class Put>
std::string text_of(Put put) {
  char buffer[256];
  SafeText text(buffer, sizeof buffer, -1);
  put(text);
  return {buffer, text.size()};
}

}  // namespace

TEST_CASE("numbers, times and strings", "[dump][race]") {
  CHECK(text_of([](auto& t) { t.u64(0).chr(' ').u64(UINT64_MAX); }) == "0 18446744073709551615");
  CHECK(text_of([](auto& t) { t.i64(-1).chr(' ').i64(INT64_MIN); }) == "-1 -9223372036854775808");
  CHECK(text_of([](auto& t) { t.hex(0).chr(' ').hex(0xdeadbeef00); }) == "0x0 0xdeadbeef00");
  CHECK(text_of([](auto& t) { t.seconds(0.0004).chr(' ').seconds(12.44); }) == "400 us 12.4 s");
  CHECK(text_of([](auto& t) { t.seconds(754); }) == "754 s (12 min 34 s)");
  CHECK(text_of([](auto& t) { t.seconds(7384); }) == "7384 s (2 h 3 min 4 s)");
  for (const double bad : {-1.0, 1e300, double{NAN}, double{INFINITY}}) {
    CHECK(text_of([=](auto& t) { t.seconds(bad); }) == "an unknown time");
  }
  CHECK(text_of([](auto& t) { t.safe("a\nb\x7f\x80z", 5); }) == "a?b?\x80");
  CHECK(text_of([](auto& t) { t.utc(1709210096789000000); }) == "2024-02-29 12:34:56.789 UTC");
  // Against the C library, over leap years and centuries.
  for (int64_t day = 0; day < 84000; day += 13) {
    const time_t seconds = day * 86400 + day;
    tm parts;
    char expected[32];
    strftime(expected, sizeof expected, "%Y-%m-%d %H:%M:%S.000 UTC", gmtime_r(&seconds, &parts));
    REQUIRE(text_of([=](auto& t) { t.utc(static_cast<uint64_t>(seconds) * 1000000000); }) == expected);
  }
}

TEST_CASE("a buffer without a file is cut, never overrun", "[dump][race]") {
  char buffer[8] = "1234567";
  SafeText text(buffer, 4, -1);
  text.str("abcdefgh").u64(99999).seconds(1e9);
  CHECK(std::string(buffer) == "abcd567");
}

TEST_CASE("guarded reads refuse what is not there", "[dump][race]") {
  REQUIRE(stacks::prepare_memory());
  auto* pages = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(pages + 4096, 4096, PROT_NONE);
  strcpy(pages + 4090, "hello");
  const auto end = reinterpret_cast<uint64_t>(pages) + 4096;
  stacks::Reader reader;
  reader.reset();
  uint64_t value;
  CHECK(reader.load(end - 8, &value));
  for (const uint64_t bad :
       {end - 7, end, uint64_t{0}, uint64_t{1}, ~uint64_t{0}, ~uint64_t{0} - 7, uint64_t{1} << 63}) {
    CHECK_FALSE(reader.load(bad, &value));
  }
  char text[16];
  CHECK(reader.text(end - 6, text, sizeof text));
  CHECK(std::string(text) == "hello");
  pages[4095] = '!';  // no NUL before the hole
  CHECK(reader.text(end - 6, text, sizeof text));
  CHECK(std::string(text) == "hello!");
  munmap(pages, 8192);
}

TEST_CASE("DWARF expressions", "[dump][race]") {
  stacks::prepare_memory();
  stacks::Reader reader;
  reader.reset();
  stacks::Registers registers{};
  registers.r[stacks::kStackRegister] = 1000;
  registers.r[6] = 5;
  uint64_t result = 0;
  const auto run = [&](std::initializer_list<unsigned char> code, bool cfa) {
    std::vector<unsigned char> bytes(1, static_cast<unsigned char>(code.size()));
    bytes.insert(bytes.end(), code);
    bytes.resize(64);
    return stacks::evaluate(reader, reinterpret_cast<uint64_t>(bytes.data()), registers, cfa, 77, &result);
  };
  CHECK((run({0x38, 0x1c}, true) && result == 69));  // CFA - 8
  CHECK((run({0x76, 0x7f}, false) && result == 4));  // r6 - 1
  CHECK((run({0x31, 0x32, 0x24, 0x09, 0xff, 0x22}, false) && result == 3));  // (1 << 2) + -1
  CHECK((run({0x31, 0x28, 0x01, 0x00, 0x00, 0x33}, false) && result == 3));  // branch over garbage
  CHECK_FALSE(run({0x22}, false));  // empty stack
  CHECK_FALSE(run({0x2f, 0xfd, 0xff}, false));  // endless loop
  CHECK_FALSE(run({0x31, 0x06}, false));  // load from address 1
  CHECK_FALSE(run({0x2f, 0x00, 0x70}, false));  // jump out
  CHECK_FALSE(run({0xff}, false));
}

TEST_CASE("the first line says what the rank waits for", "[dump][race]") {
  CHECK_THAT(first_line(dump_with([] {
               auto& call = record("MPI_Allreduce", 3, true);
               call.comm = 1;
               call.sequence = 41;
               call.bytes = 1;
             })),
             Catch::Contains("in MPI_Allreduce on MPI_COMM_WORLD, collective 41 on it, 1 byte, for 3.0"));
  CHECK_THAT(first_line(dump_with([] {
               auto& call = record("MPI_Bcast", 3, true);
               call.comm = 1;
               call.peer = 0;
               call.sequence = 2;
             })),
             Catch::Contains("in MPI_Bcast with root rank 0, MPI_COMM_WORLD, collective 2 on it, for"));
  CHECK_THAT(first_line(dump_with([] {
               auto& call = record("MPI_Probe", 500, true);
               call.comm = 1;
               call.peer = ring::kAnySource;
               call.tag = ring::kAnyTag;
             })),
             Catch::Contains("in MPI_Probe from any source, any tag, MPI_COMM_WORLD, for 500 s (8 min 20 s)"));
  CHECK_THAT(first_line(dump_with([] {
               record("MPI_Send", 20, false).duration = static_cast<float>(5 * runtime.header->ticks_per_second);
             })),
             Catch::Contains("in user code, not in MPI, for 15.0 s; last call MPI_Send, returned"));
  CHECK_THAT(first_line(dump_with([] {
               auto& call = record("MPI_Iprobe", 20, false);
               call.flags = ring::kFolded;
               call.repeat = 123456;
             })),
             Catch::Contains("polling: MPI_Iprobe, 123456 times in a row since 20.0 s ago"));
  CHECK_THAT(first_line(dump_with([] {})), Catch::Contains("in user code, has called nothing in MPI yet"));
  CHECK_THAT(first_line(dump_with([] {
               runtime.traces[0].state = 0;
               runtime.header->phase = 0;
               runtime.header->ticks_start = ticks_ago(4);
             })),
             Catch::Contains("phase starting (in MPI_Init) for 4.0"));
  CHECK_THAT(first_line(dump_with([] {
               runtime.rank = -1;
               runtime.size = 0;
               record("MPI_Init", 2, true);
               runtime.rank = 3;
             })),
             Catch::Contains("rank 3 (node17, pid ") && Catch::Contains("): in MPI_Init, for 2.0"));
  const std::string two = dump_with([] {
    runtime.traces[1].state = static_cast<uint32_t>(ring::TraceState::kLive);
    runtime.traces[1].tid = 4242;
    strcpy(runtime.traces[1].name, "worker");
    record("MPI_Wait", 1, true).aux = 1;
  });
  CHECK_THAT(first_line(two), Catch::Contains("in MPI_Wait for 1 request, for 1."));
  CHECK_THAT(two, Catch::Contains("\n  and thread 4242 (worker): in user code"));
}

TEST_CASE("a communicator of the program has its id with it", "[dump][race]") {
  CHECK_THAT(first_line(dump_with([] {
               runtime.comms[2] = runtime.comms[1];
               runtime.comms[2].id = 0xabc;
               strcpy(runtime.comms[2].name, "ocean");
               record("MPI_Barrier", 2, true).comm = 2;
             })),
             Catch::Contains("in MPI_Barrier on ocean (id 0xabc), for 2.0"));
}

TEST_CASE("pending requests, steps, records and communicators", "[dump][race]") {
  std::string errors;
  const std::string text = dump_with(
      [] {
        for (uint32_t i = 0; i < 100; ++i) {
          auto& request = runtime.requests[i];
          request.key = 1 + i;
          request.kind = static_cast<uint8_t>(ring::RequestKind::kReceive);
          request.call = call_id("MPI_Irecv");
          request.comm = 1;
          request.peer = static_cast<int32_t>(i);
          request.tag = 7;
          request.bytes = 4096;
          request.time = ticks_ago(10 + (i * 37 % 100));
        }
        runtime.requests[100].key = 9;
        runtime.requests[100].flags = ring::kPersistent;  // inactive: not pending
        runtime.traces[0].step = 12;
        runtime.traces[0].step_name = 1;
        strcpy(runtime.names[1].name, "assemble");
        runtime.comms[1].collectives = 5;
        runtime.comms[1].last_collective = call_id("MPI_Barrier");
        for (int i = 0; i < 40; ++i) record("MPI_Send", 40 - i, false).tag = i;
        auto& step = record("MPI_Send", 0.5, false);
        step.state = static_cast<uint8_t>(ring::RecordState::kStep);
        step.aux = 1;
      },
      &errors);
  CHECK_THAT(text,
             Catch::Contains("\nstep 12 \"assemble\", 41 MPI calls so far; 100 pending requests, the oldest: "
                             "receive by MPI_Irecv from rank 27, tag 7, MPI_COMM_WORLD, 4096 bytes, posted 109."));
  CHECK_THAT(text, Catch::Contains("\na module's line\n"));
  CHECK(count(text, "  receive by MPI_Irecv") == 64);
  CHECK_THAT(text, Catch::Contains("\n  and 36 more\n"));
  CHECK(text.find("posted 109.") < text.find("posted 108."));
  CHECK(count(text, "MPI_Send") == 1 + 15);
  CHECK_THAT(text, Catch::Contains("ago: resil_step \"assemble\"") && Catch::Contains("tag 25"));
  CHECK_THAT(text, !Catch::Contains("tag 24"));
  CHECK_THAT(text, Catch::Contains("MPI_COMM_WORLD (id 0x77): rank 3 of 16, 5 collectives, the last MPI_Barrier"));
  CHECK_THAT(errors, Catch::Contains("resil:   step 12 \"assemble\"") && Catch::Contains("resil:   main thread: "));
}

TEST_CASE("an address in an exported function has its name", "[dump][race]") {
  static stacks::Symbols symbols;
  stacks::prepare_memory();
  stacks::prepare_objects();
  symbols.reset();
  const auto address = reinterpret_cast<uint64_t>(&gnu_get_libc_version) + 3;
  CHECK(text_of([=](auto& t) { symbols.put(t, address, false); }) == "gnu_get_libc_version+0x3 (libc.so.6)");
  const std::string site = text_of([=](auto& t) { symbols.put_site(t, address); });
  CHECK_THAT(site, Catch::StartsWith("libc.so.6+0x") && Catch::EndsWith(" (gnu_get_libc_version+0x3)"));
  CHECK(text_of([](auto& t) { symbols.put(t, 0x10, true); }) == "0x10");
  CHECK(text_of([](auto& t) { symbols.put_site(t, 0); }) == "0x0");
}

TEST_CASE("a damaged ring neither crashes nor traps the dump", "[dump][race]") {
  for (unsigned seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    const std::string text = dump_with([&] {
      std::mt19937_64 random(seed);
      const auto scribble = [&](void* memory, size_t bytes) {
        auto* words = static_cast<uint64_t*>(memory);
        for (size_t i = 0; i < bytes / 8; ++i) {
          switch (random() % 4) {
            case 0: words[i] = random(); break;
            case 1: words[i] = ~uint64_t{0}; break;
            case 2: words[i] = random() % 8; break;
            default: break;
          }
        }
      };
      ring::Header& header = *runtime.header;
      scribble(runtime.traces, runtime.trace_count * sizeof(ring::TraceBuffer));
      scribble(runtime.comms, runtime.comm_count * sizeof(ring::Comm));
      scribble(runtime.requests, runtime.request_count * sizeof(ring::Request));
      scribble(runtime.names, runtime.name_count * sizeof(ring::Name));
      scribble(&header.host, 4096 - offsetof(ring::Header, host) > sizeof header - offsetof(ring::Header, host)
                                 ? sizeof header - offsetof(ring::Header, host)
                                 : 4096 - offsetof(ring::Header, host));
      header.dumps = 0;
      for (uint32_t i = 0; i < runtime.trace_count; ++i) runtime.traces[i].state = 1;
    });
    CHECK_THAT(text, Catch::Contains("\nCommunicators") && Catch::Contains("\nThreads: "));
    CHECK(text.size() < 200000);
  }
}
