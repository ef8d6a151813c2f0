// SPDX-License-Identifier: Apache-2.0
//
// Which memory the host may touch, with runtimes that come one after the other, as in a program that loads them late.
// They are dlopened copies of fake_runtimes.c; a process never gets rid of one, so this is one test case in order.

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "check.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/accelerators/level_zero.h"
#include "shim/runtime/accelerators/runtimes.h"

using resil::host_memory;

namespace {

struct Fake {
  uintptr_t low, high;
  int kind, initialized, error, calls;
};

Fake& load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  auto* fake = static_cast<Fake*>(dlsym(library, "fake_runtime"));
  REQUIRE(fake != nullptr);
  return *fake;
}

constexpr size_t kBytes = 1 << 20;

char* map(int protection) {
  void* memory = mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  return static_cast<char*>(memory);
}

void set(Fake& fake, const char* memory, int kind) {
  fake.low = reinterpret_cast<uintptr_t>(memory);
  fake.high = fake.low + kBytes;
  fake.kind = kind;
}

/// A machine's /dev and /sys, as far as they tell of devices.
class Tree {
 public:
  Tree() {
    REQUIRE(mkdtemp(root_) != nullptr);
    std::filesystem::create_directories(std::string(root_) + "/dev");
  }
  ~Tree() { std::filesystem::remove_all(root_); }
  const char* root() const { return root_; }

  void file(const std::string& path, const char* text) {
    const std::filesystem::path whole = root_ + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  void node(const std::string& name, const char* vendor) {
    file("/dev/dri/" + name, "");
    if (vendor != nullptr) file("/sys/class/drm/" + name + "/device/vendor", (std::string(vendor) + "\n").c_str());
  }

 private:
  char root_[32] = "/tmp/resil-devices-XXXXXX";
};

int static_data[100] = {1};

uint64_t loaded_objects() {
  uint64_t count = 0;
  auto visit = [](dl_phdr_info* info, size_t, void* to) {
    *static_cast<uint64_t*>(to) = info->dlpi_adds;
    return 1;
  };
  dl_iterate_phdr(visit, &count);
  return count;
}

}  // namespace

TEST_CASE("host memory, with runtimes that are loaded later") {
  char* host = map(PROT_READ | PROT_WRITE);
  char* device = map(PROT_NONE);
  auto* heap = static_cast<char*>(sbrk(65536));
  REQUIRE(heap != reinterpret_cast<char*>(-1));
  char local[100] = {};
  auto certain = [&] {
    CHECK(host_memory(local, sizeof(local)));
    CHECK(host_memory(heap, 65536));
    CHECK(host_memory(static_data, sizeof(static_data)));
    CHECK(host_memory(nullptr, 0));
    std::thread([] {
      char own[100] = {};
      CHECK(host_memory(own, sizeof(own)));
    }).join();
  };

  // Nothing loaded: everything is the host's, whoever asks how often.
  for (int i = 0; i < 1000; ++i) CHECK((host_memory(host, kBytes) && host_memory(device, 1)));
  certain();

  // With the second number the word is found that has it, and nobody is asked while that stays.
  CHECK(resil::gpu::absence().word == nullptr);
  REQUIRE(dlopen("libanl.so.1", RTLD_NOW) != nullptr);
  CHECK(host_memory(host, kBytes));
  const uint64_t* loads = resil::gpu::absence().word;
  REQUIRE(loads != nullptr);
  CHECK(*loads == loaded_objects());
  CHECK(resil::gpu::absence().value == *loads);
  CHECK(resil::gpu::runtimes_absent());
  void* other = dlopen("libBrokenLocale.so.1", RTLD_NOW);  // one goes, another comes
  REQUIRE(other != nullptr);
  CHECK(!resil::gpu::runtimes_absent());
  CHECK(resil::gpu::runtimes() == 0);
  CHECK(resil::gpu::runtimes_absent());
  dlclose(other);
  CHECK(*loads == loaded_objects());

  // CUDA's driver is loaded, but the program has not used it.
  Fake& cuda = load(FAKE_CUDA);
  CHECK(host_memory(host, kBytes));
  CHECK(cuda.calls > 0);
  certain();

  cuda.initialized = 1;
  set(cuda, device, 2);
  CHECK(!host_memory(device, 100));
  CHECK(!host_memory(device + kBytes - 1, 1));
  CHECK(host_memory(host, kBytes));
  set(cuda, host, 1);  // pinned
  CHECK(host_memory(host, kBytes));
  set(cuda, host, 1 + 32);  // the host's, but mapped by the program: perhaps not for the host
  CHECK(!host_memory(host, kBytes));
  set(cuda, host, 2 + 16);  // managed, which the driver calls a device's
  CHECK(!host_memory(host, kBytes));
  set(cuda, host, 1 + 16);
  CHECK(!host_memory(host, kBytes));
  set(cuda, host, 4);  // unified
  CHECK(!host_memory(host, kBytes));
  set(cuda, host + 4096, 2);  // begins as the host's
  CHECK(host_memory(host, 4096));
  CHECK(!host_memory(host, 4097));
  set(cuda, device, 2);
  cuda.error = 201;  // no context: not certain
  CHECK(!host_memory(host, 1));
  cuda.error = 1;  // no pointer of its own, as old drivers say it
  CHECK(host_memory(host, 1));
  cuda.error = 0;

  // What is certain is not asked for.
  const int calls = cuda.calls;
  certain();
  CHECK(cuda.calls == calls);

  // HIP without the library beneath it is not known; HIP itself must not be called.
  Fake& hip = load(FAKE_HIP);
  CHECK(!host_memory(host, 1));
  certain();
  Fake& hsa = load(FAKE_HSA);
  CHECK(host_memory(host, kBytes));
  hsa.initialized = 1;
  set(hsa, device, 1);
  CHECK(!host_memory(device, 1));
  CHECK(host_memory(host, kBytes));
  set(hsa, host, 0);  // allocated by the runtime, on the host
  CHECK(host_memory(host, kBytes));
  set(hsa, host, 2);  // locked
  CHECK(host_memory(host, kBytes));
  set(hsa, host, 1);
  CHECK(!host_memory(host, kBytes));
  set(hsa, device, 1);
  CHECK(!host_memory(device, 1));  // both runtimes' own
  cuda.low = cuda.high = 0;
  CHECK(!host_memory(device, 1));
  CHECK(hip.calls == 0);

  // Level Zero, which nobody can ask: its loader without a driver, or a driver without a device, has no memory to give.
  cuda.initialized = hsa.initialized = 0;
  Tree tree;
  resil::gpu::runtimes_detail::root = tree.root();
  load(FAKE_LEVEL_ZERO);
  CHECK(host_memory(host, kBytes));
  load(FAKE_LEVEL_ZERO_DRIVER);
  CHECK(host_memory(host, kBytes));
  // With one, only what is certain is the host's, from the next library on.
  tree.node("renderD128", "0x8086");
  REQUIRE(dlopen("libBrokenLocale.so.1", RTLD_NOW) != nullptr);
  CHECK(!host_memory(host, 1));
  certain();
  resil::gpu::runtimes_detail::root = "";
}

TEST_CASE("Level Zero counts when it has a device") {
  using resil::gpu::level_zero_device;
  Tree tree;
  CHECK(!level_zero_device(tree.root()));  // neither /dev/dri nor /dev/accel
  tree.node("card0", "0x1a03");  // a server's display adapter
  CHECK(!level_zero_device(tree.root()));
  tree.node("renderD128", "0x10de");
  tree.node("renderD129", "0x1002");
  CHECK(!level_zero_device(tree.root()));
  SECTION("Intel's") {
    tree.node("renderD130", "0x8086");
    CHECK(level_zero_device(tree.root()));
  }
  SECTION("of a vendor that /sys does not tell, as in a container") {
    tree.node("renderD130", nullptr);
    CHECK(level_zero_device(tree.root()));
  }
  SECTION("an accelerator") {
    tree.file("/dev/accel/accel0", "");
    CHECK(level_zero_device(tree.root()));
  }
  SECTION("Windows' subsystem") {
    tree.file("/dev/dxg", "");
    CHECK(level_zero_device(tree.root()));
  }
  SECTION("a folder that is none") {
    tree.file("/dev/accel", "");
    CHECK(level_zero_device(tree.root()));
  }
  SECTION("a path too long to look at") { CHECK(level_zero_device(std::string(4000, '/').c_str())); }
}

TEST_CASE("Level Zero's libraries by their names") {
  using resil::gpu::level_zero_library;
  using resil::gpu::LevelZero;
  CHECK(level_zero_library("libze_loader.so.1.20.6") == LevelZero::kLoader);
  CHECK(level_zero_library("libze_intel_gpu.so.1") == LevelZero::kDriver);
  CHECK(level_zero_library("libze_intel_npu.so.1") == LevelZero::kDriver);
  CHECK(level_zero_library("libze_somebody.so") == LevelZero::kDriver);
  CHECK(level_zero_library("libze_tracing_layer.so.1") == LevelZero::kHarmless);
  CHECK(level_zero_library("libzstd.so.1") == LevelZero::kNone);
}
