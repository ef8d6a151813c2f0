// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 and HMAC against the published vectors (FIPS 180-4 examples, RFC 4231).
#include <cstring>
#include <string>

#include "check.h"
#include "detectors/hang/overlay/mac.h"

using namespace resil::hang::overlay;

namespace {

std::string hex(const uint8_t* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

std::string sha256(const std::string& text, size_t piece) {
  Sha256 hash;
  for (size_t i = 0; i < text.size(); i += piece) hash.add(text.data() + i, std::min(piece, text.size() - i));
  uint8_t digest[32];
  hash.finish(digest);
  return hex(digest, 32);
}

std::string hmac(const std::string& key, const std::string& text, size_t cut) {
  uint8_t mac[32];
  const MacKey ready(key.data(), key.size());
  ready.full(text.data(), cut, text.data() + cut, text.size() - cut, mac);
  uint8_t wire[kMacBytes];
  ready.sign(text.data(), text.size(), nullptr, 0, wire);
  CHECK(memcmp(wire, mac, sizeof(wire)) == 0);
  CHECK(ready.verify(text.data(), text.size(), nullptr, 0, wire));
  for (size_t bit = 0; bit < 8 * sizeof(wire); ++bit) {
    wire[bit / 8] = static_cast<uint8_t>(wire[bit / 8] ^ 1 << bit % 8);
    CHECK_FALSE(ready.verify(text.data(), text.size(), nullptr, 0, wire));
    wire[bit / 8] = static_cast<uint8_t>(wire[bit / 8] ^ 1 << bit % 8);
  }
  return hex(mac, 32);
}

}  // namespace

TEST_CASE("SHA-256 gives the digests of FIPS 180-4, however the text is cut") {
  for (size_t piece : {1, 3, 55, 56, 63, 64, 65, 1000}) {
    CHECK(sha256("", piece) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(sha256("abc", piece) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", piece) ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(sha256(std::string(1000000, 'a'), 1000 * piece) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST_CASE("HMAC-SHA-256 gives the codes of RFC 4231") {
  const struct {
    std::string key, text, code;
  } kCases[] = {
      {std::string(20, '\x0b'), "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {std::string(20, '\xaa'), std::string(50, '\xdd'),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {std::string(131, '\xaa'),
       "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
       "hashed before being used by the HMAC algorithm.",
       "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"}};
  for (const auto& one : kCases)
    for (size_t cut : {size_t{0}, size_t{1}, one.text.size()}) CHECK(hmac(one.key, one.text, cut) == one.code);
}
