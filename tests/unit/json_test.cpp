// SPDX-License-Identifier: Apache-2.0
//
// The JSON writer against a strict parser (RFC 8259, RFC 3629): whatever goes in, valid text comes out.
#include "shim/report/json.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <thread>

#include "check.h"
#include "json_parser.h"

namespace {

using resil::JsonWriter;

/// Memory file, read back.
class Sink {
 public:
  Sink() : fd_(memfd_create("json", MFD_CLOEXEC)) { REQUIRE(fd_ >= 0); }
  ~Sink() { close(fd_); }
  int fd() const { return fd_; }
  std::string text() const {
    std::string all(static_cast<size_t>(lseek(fd_, 0, SEEK_END)), 0);
    REQUIRE(pread(fd_, all.data(), all.size(), 0) == static_cast<ssize_t>(all.size()));
    return all;
  }

 private:
  int fd_;
};

template <class Fill>
Json round_trip(Fill fill, bool one_line = false, std::string* text = nullptr) {
  Sink sink;
  auto writer = std::make_unique<JsonWriter>(sink.fd(), one_line);
  fill(*writer);
  REQUIRE(writer->finish());
  std::string all = sink.text();
  if (text != nullptr) *text = all;
  INFO(all.substr(0, 400));
  Json value;
  REQUIRE(JsonParser(all).parse(&value));
  return value;
}

/// What a reader should see for these bytes: each byte outside a valid sequence becomes U+FFFD.
std::string repaired(const std::string& bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size() && bytes[i] != 0;) {
    size_t length = utf8_sequence(bytes, i);
    out += length != 0 ? bytes.substr(i, length) : "\xef\xbf\xbd";
    i += length != 0 ? length : 1;
  }
  return out;
}

}  // namespace

// What all units stand on (check.h): a comparison that does not hold fails its test case, in each form.
TEST_CASE("checks: CHECK", "[!shouldfail]") { CHECK(1 + 1 == 3); }
TEST_CASE("checks: CHECK of a truth value", "[!shouldfail]") { CHECK(std::string("a").empty()); }
TEST_CASE("checks: CHECK_FALSE", "[!shouldfail]") { CHECK_FALSE(1 + 1 == 2); }
TEST_CASE("checks: REQUIRE ends the case", "[!shouldfail]") {
  REQUIRE(std::string("a") == "b");
  exit(1);
}
TEST_CASE("checks: REQUIRE_FALSE", "[!shouldfail]") { REQUIRE_FALSE(1 < 2); }

TEST_CASE("json: the parser of this test is strict") {
  Json value;
  for (const char* bad :
       {"", "{", "{\"a\":1,}", "[1,]", "[01]", "[1.]", "[.5]", "[+1]", "[nan]", "[1,5 2]", "[\"\x01\"]", "[\"\xff\"]",
        "[\"\xed\xa0\x80\"]", "[\"\\x\"]", "[1] [2]", "{\"a\" 1}", "[1e]", "[\"\xc0\x80\"]"})
    CHECK_FALSE(JsonParser(bad).parse(&value));
  CHECK(JsonParser("{\"a\": [1, -2.5e+10, \"\\u00e9\", null, true, {}]}\n").parse(&value));
}

TEST_CASE("json: any bytes as keys and values") {
  std::mt19937 random(4711);
  const char awkward[] =
      "\xe2\x82\xac\xf0\x9f\x98\x80\xed\"\\\n\x7f"
      "a";
  for (int round = 0; round < 400; ++round) {
    std::string bytes(random() % 64, 0);
    for (char& c : bytes) c = round % 2 == 0 ? static_cast<char>(random() % 256) : awkward[random() % 13];
    Json value = round_trip(
        [&](JsonWriter& json) {
          json.begin_object();
          json.text(bytes.c_str(), bytes.c_str());
          json.begin_array("list");
          json.text(nullptr, bytes.c_str());
          json.end_array();
          json.end_object();
        },
        round % 3 == 0);
    std::string wanted = repaired(bytes);
    CHECK(value.members.at(0).first == wanted);
    CHECK(value.members.at(0).second.string == wanted);
    CHECK(value.members.at(1).second.items.at(0).string == wanted);
  }
}

TEST_CASE("json: boundaries of UTF-8") {
  const char* good[] = {"\x7f",         "\xc2\x80",     "\xdf\xbf",         "\xe0\xa0\x80",
                        "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
  const char* bad[] = {"\x80",
                       "\xc1\xbf",
                       "\xe0\x9f\xbf",
                       "\xed\xa0\x80",
                       "\xf0\x8f\xbf\xbf",
                       "\xf4\x90\x80\x80",
                       "\xf5\x80\x80\x80",
                       "\xe2\x82",
                       "\xf0\x9f\x98",
                       "\xc3"};
  for (const char* text : good) {
    Json value = round_trip([&](JsonWriter& json) { json.text(nullptr, text); });
    CHECK(value.string == text);
  }
  for (const char* text : bad) {
    Json value = round_trip([&](JsonWriter& json) { json.text(nullptr, text); });
    CHECK(value.string == repaired(text));
    CHECK(value.string.find("\xef\xbf\xbd") == 0);
  }
}

TEST_CASE("json: numbers") {
  using Double = std::numeric_limits<double>;
  for (double number : {0.0, -0.0, 1.0, -1.5, 1e-300, 1e300, -1.79e308, Double::denorm_min(), 0.1, 1732165342.123456}) {
    Json value = round_trip([&](JsonWriter& json) { json.number(nullptr, number); });
    REQUIRE(value.kind == Json::kNumber);
    CHECK(value.number == Approx(number).epsilon(1e-14));
  }
  for (double number :
       {Double::quiet_NaN(), -Double::quiet_NaN(), Double::signaling_NaN(), Double::infinity(), -Double::infinity()})
    CHECK(round_trip([&](JsonWriter& json) { json.number(nullptr, number); }).kind == Json::kNull);
  for (int64_t number : {INT64_MIN, int64_t{-1}, int64_t{0}, INT64_MAX}) {
    std::string text;
    round_trip([&](JsonWriter& json) { json.integer(nullptr, number); }, false, &text);
    CHECK(text == std::to_string(number) + "\n");
  }
}

TEST_CASE("json: the application's locale does not show", "[slow]") {
  char directory[] = "/tmp/resil-locale-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  setenv("LOCPATH", directory, 1);
  // Decimal points of one byte and of two (U+066B in Pashto).
  for (const char* locale : {"de_DE", "ps_AF"}) {
    std::string path = std::string(directory) + "/" + locale + ".UTF-8";
    std::string command = std::string("localedef --no-archive -f UTF-8 -i ") + locale + " " + path + " 2>/dev/null";
    if (system(command.c_str()) != 0 || setlocale(LC_ALL, (std::string(locale) + ".UTF-8").c_str()) == nullptr) {
      WARN("not tested, cannot make the locale " << locale);
      continue;
    }
    CHECK(std::string(localeconv()->decimal_point) != ".");
    Json value = round_trip([](JsonWriter& json) { json.number(nullptr, -1234567.25); });
    setlocale(LC_ALL, "C");
    CHECK(value.number == -1234567.25);
  }
  unsetenv("LOCPATH");
  CHECK(system((std::string("rm -r ") + directory).c_str()) == 0);
}

TEST_CASE("json: one line stays one line, nesting, empty containers") {
  std::string text;
  Json value = round_trip(
      [](JsonWriter& json) {
        json.begin_object();
        json.begin_object("empty");
        json.end_object();
        json.begin_array("deep");
        for (int i = 0; i < 20; ++i) {
          json.begin_array();
          json.integer(nullptr, i);
        }
        for (int i = 0; i < 20; ++i) json.end_array();
        json.end_array();
        json.boolean("yes", true);
        json.null("nothing");
        json.text("lines", "a\nb");
        json.end_object();
      },
      true, &text);
  CHECK(text.find('\n') == text.size() - 1);
  CHECK(value.members.size() == 5);
  CHECK(value.members[2].second.boolean);
}

TEST_CASE("json: longer than the buffer, through a slow pipe, and used again") {
  std::string big(200000, 'x');
  big += "\xc3";
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::string all;
  std::thread reader([&] {
    char block[777];
    for (ssize_t got; (got = read(ends[0], block, sizeof(block))) > 0;) all.append(block, static_cast<size_t>(got));
  });
  auto writer = std::make_unique<JsonWriter>(ends[1]);
  writer->begin_array();
  for (int i = 0; i < 3; ++i) writer->text(nullptr, big.c_str());
  writer->end_array();
  CHECK(writer->finish());
  close(ends[1]);
  reader.join();
  close(ends[0]);
  Json value;
  REQUIRE(JsonParser(all).parse(&value));
  CHECK(value.items.at(2).string == repaired(big));

  Sink sink;
  writer->restart(sink.fd(), true);
  writer->begin_object();
  writer->integer("a", 1);
  writer->end_object();
  CHECK(writer->finish());
  CHECK(sink.text() == "{\"a\": 1}\n");
}

TEST_CASE("json: a failing file is told, with the first error") {
  for (const char* path : {"/dev/full", "/dev/null"}) {
    int fd = open(path, path == std::string("/dev/full") ? O_WRONLY : O_RDONLY);
    REQUIRE(fd >= 0);
    auto writer = std::make_unique<JsonWriter>(fd);
    writer->begin_array();
    for (int i = 0; i < 20000; ++i) writer->text(nullptr, "0123456789");
    writer->end_array();
    CHECK_FALSE(writer->finish());
    CHECK(writer->error() == (path == std::string("/dev/full") ? ENOSPC : EBADF));
    close(fd);
  }
}

TEST_CASE("json: a line that is too long to be written at once is not written at all") {
  Sink sink;
  auto writer = std::make_unique<JsonWriter>();
  const std::string text(60000, 'x');
  for (const int count : {2, 1}) {
    writer->restart(sink.fd(), true);
    writer->begin_array();
    for (int i = 0; i < count; ++i) writer->text(nullptr, text.c_str());
    writer->end_array();
    CHECK(writer->finish() == (count == 1));
    CHECK(writer->error() == (count == 1 ? 0 : EMSGSIZE));
    CHECK(sink.text().size() == (count == 1 ? text.size() + 5 : 0));
  }
}
