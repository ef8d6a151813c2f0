// SPDX-License-Identifier: Apache-2.0
//
// Memory of another process through pipeline/gpu: two processes on the stand-in, each with settings of its own. They
// are this program again, with the hidden case that they are to run; the one that Catch runs has no driver.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "check.h"
#include "pipeline/gpu/kernels/image.h"
#include "tests/unit/gpu_fixture.h"

using namespace resil;

namespace resil::gpu {
KernelImage kernel_image(Api) { return {nullptr, 0}; }
}  // namespace resil::gpu

namespace {

constexpr size_t kBytes = size_t{2} << 20, kOffset = 4096;
constexpr int kLine = 100;  ///< the conversation, in both

template <class T>
void tell(const T& what) {
  REQUIRE(write(kLine, &what, sizeof(what)) == static_cast<ssize_t>(sizeof(what)));
}
template <class T>
T hear() {
  T what;
  REQUIRE(read(kLine, &what, sizeof(what)) == static_cast<ssize_t>(sizeof(what)));
  return what;
}
void hear_end() {
  char byte;
  REQUIRE(read(kLine, &byte, 1) == 0);
}

bool hip() { return getenv("IPC_HIP") != nullptr; }

void* driver() {
  static void* library;
  if (library == nullptr) library = dlopen(getenv("IPC_DRIVER"), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  return library;
}

template <class Function>
Function* named(const char* name) {
  auto* function = reinterpret_cast<Function*>(dlsym(driver(), name));
  if (function == nullptr) FAIL("the stand-in lacks " << name);
  return function;
}

/// The program's own device memory.
char* programs_memory(int ordinal) {
  void* memory = nullptr;
  if (hip()) {
    REQUIRE(named<int(int)>("hipSetDevice")(ordinal) == 0);
    REQUIRE(named<int(void**, size_t)>("hipMalloc")(&memory, kBytes) == 0);
  } else {
    CUcontext context = nullptr;
    REQUIRE(named<decltype(cuInit)>("cuInit")(0) == CUDA_SUCCESS);
    REQUIRE(named<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, ordinal) == CUDA_SUCCESS);
    REQUIRE(named<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent")(context) == CUDA_SUCCESS);
    REQUIRE(named<int(void**, size_t)>("cuMemAlloc_v2")(&memory, kBytes) == 0);
  }
  return static_cast<char*>(memory);
}

char* view(const void* memory) {
  return static_cast<char*>(named<decltype(fakegpu_host_view)>("fakegpu_host_view")(memory));
}

/// Errors of handles are no errors of the device.
void check_good(gpu::Device& device) {
  const gpu::EventHandle event = gpu::event_acquire(device);
  CHECK(event != 0);
  CHECK(gpu::event_record(device, gpu::StreamRole::kPeer, event));
  CHECK(wait_for(device, event) == gpu::State::kDone);
  gpu::event_release(device, event);
}

void check_refused(gpu::Device& device, const gpu::IpcHandle& handle, const char* why) {
  void* memory = &memory;
  CHECK(!gpu::ipc_open(device, handle, &memory));
  CHECK(memory == nullptr);
  CHECK(std::string(gpu::last_error()) == why);
  check_good(device);
}

/// Both processes; their settings, and which case each runs. True: both found all as it should be.
struct How {
  const char *exporter, *exports, *opener, *opens;
};
bool both(const How& how, bool with_hip, const std::string& library, const std::string& needs = "") {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  pid_t pids[2];
  for (int i = 0; i < 2; ++i) {
    pids[i] = fork();
    REQUIRE(pids[i] >= 0);
    if (pids[i] != 0) continue;
    dup2(ends[i], kLine);
    setenv("FAKEGPU", i == 0 ? how.exporter : how.opener, 1);
    setenv("IPC_DRIVER", library.c_str(), 1);
    if (!needs.empty()) setenv("LD_LIBRARY_PATH", needs.c_str(), 1);
    if (with_hip) setenv("IPC_HIP", "1", 1);
    alarm(20);
    execl("/proc/self/exe", "gpu_ipc_test", i == 0 ? how.exports : how.opens, nullptr);
    _exit(127);
  }
  close(ends[0]);
  close(ends[1]);
  bool good = true;
  for (const pid_t pid : pids) {
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    good = good && status == 0;
  }
  return good;
}

}  // namespace

// --- Exporters ---

TEST_CASE("exports", "[.export]") {
  gpu::Device& device = device_of(programs_memory(0));
  auto* memory = static_cast<char*>(gpu::device_allocate(device, kBytes));
  REQUIRE(memory != nullptr);
  memset(view(memory), 5, kBytes);
  gpu::IpcHandle handle;
  REQUIRE(gpu::ipc_export(device, memory + kOffset, &handle));
  check_refused(device, handle, hip() ? "hipErrorUnknown" : "CUDA_ERROR_INVALID_CONTEXT");  // its own
  char host[64];
  gpu::IpcHandle none;
  CHECK(!gpu::ipc_export(device, host, &none));
  tell(handle);
  hear<char>();
  const std::vector<char> data = random_bytes(kBytes - kOffset, 9);
  CHECK(view(memory)[kOffset - 1] == 5);
  CHECK(memcmp(view(memory) + kOffset, data.data(), data.size()) == 0);
  gpu::device_free(device, memory);
  tell('f');
  hear_end();
}

TEST_CASE("exports and goes", "[.go]") {
  gpu::Device& device = device_of(programs_memory(0));
  gpu::IpcHandle handle;
  REQUIRE(gpu::ipc_export(device, gpu::device_allocate(device, kBytes), &handle));
  tell(handle);
  hear<char>();
}

TEST_CASE("cannot export", "[.none]") {
  gpu::Device& device = device_of(programs_memory(0));
  gpu::IpcHandle handle;
  CHECK(!gpu::ipc_export(device, gpu::device_allocate(device, kBytes), &handle));
  CHECK(std::string(gpu::last_error()) != "");
  check_good(device);
}

// --- Openers ---

TEST_CASE("opens", "[.open]") {
  char* own = programs_memory(0);
  gpu::Device& device = device_of(own);
  const auto handle = hear<gpu::IpcHandle>();
  const std::vector<char> data = random_bytes(kBytes - kOffset, 9);
  memcpy(view(own), data.data(), data.size());
  for (int round = 0; round < 2; ++round) {
    void* memory = nullptr;
    REQUIRE(gpu::ipc_open(device, handle, &memory));
    CHECK(gpu::classify(memory, kBytes - kOffset).memory == gpu::Memory::kDevice);
    CHECK(view(memory)[0] == (round == 0 ? 5 : data[0]));
    const uint64_t before = named<decltype(fakegpu_count)>("fakegpu_count")("peer");
    const gpu::EventHandle event = gpu::event_acquire(device);
    REQUIRE(gpu::copy_peer(device, memory, device, own, data.size()));
    REQUIRE(gpu::event_record(device, gpu::StreamRole::kPeer, event));
    CHECK(wait_for(device, event) == gpu::State::kDone);
    CHECK(named<decltype(fakegpu_count)>("fakegpu_count")("peer") == before + 1);
    gpu::event_release(device, event);
    gpu::ipc_close(device, handle, memory);
  }
  tell('d');
  hear<char>();
  check_refused(device, handle, hip() ? "hipErrorUnknown" : "CUDA_ERROR_INVALID_HANDLE");  // freed
}

TEST_CASE("opens nothing", "[.nothing]") {
  gpu::Device& device = device_of(programs_memory(0));
  auto handle = hear<gpu::IpcHandle>();
  check_refused(device, handle, hip() ? "hipErrorUnknown" : "CUDA_ERROR_MAP_FAILED");
  handle.driver[3] ^= 1;
  check_refused(device, handle, hip() ? "hipErrorUnknown" : "CUDA_ERROR_INVALID_HANDLE");
  handle.api = hip() ? gpu::Api::kCuda : gpu::Api::kHip;
  check_refused(device, handle, "memory of another runtime");
  tell('d');
}

TEST_CASE("opens on a device that does not reach the other", "[.apart]") {
  char *here = programs_memory(0), *there = programs_memory(1);
  const auto handle = hear<gpu::IpcHandle>();
  check_refused(device_of(there), handle, "the devices do not reach each other");
  void* memory = nullptr;
  CHECK(gpu::ipc_open(device_of(here), handle, &memory));
  gpu::ipc_close(device_of(here), handle, memory);
  tell('d');
}

TEST_CASE("opens too late", "[.late]") {
  gpu::Device& device = device_of(programs_memory(0));
  const auto handle = hear<gpu::IpcHandle>();
  tell('d');
  hear_end();
  // Its files are closed when its line is, in whatever order.
  const int process = [&] {
    int pid;
    memcpy(&pid, handle.driver + 8, sizeof(pid));  // tests/fakegpu/engine.h: Ticket
    return pid;
  }();
  while (access(("/proc/" + std::to_string(process) + "/fd/0").c_str(), F_OK) == 0) sched_yield();
  check_refused(device, handle, hip() ? "hipErrorUnknown" : "CUDA_ERROR_INVALID_HANDLE");
}

TEST_CASE("has no functions", "[.old]") {
  char* own = programs_memory(0);
  gpu::Device& device = device_of(own);
  gpu::IpcHandle handle = {};
  CHECK(!gpu::ipc_export(device, own, &handle));
  handle.api = gpu::api_of(device);
  check_refused(device, handle, hip() ? "hipErrorNotSupported" : "CUDA_ERROR_NOT_SUPPORTED");
  gpu::ipc_close(device, handle, nullptr);
}

// --- The one that Catch runs ---

namespace {

/// A driver of the same names but those of `prefix`, as old ones are: the names are spoilt in a copy.
std::string without(const std::string& library, const std::string& prefix, const std::string& directory) {
  std::ifstream in(library, std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(in)), {});
  for (size_t at = 0; (at = all.find(std::string(1, 0) + prefix, at)) != std::string::npos;) all[at + 1] = 'x';
  const std::string path = directory + library.substr(library.rfind('/'));
  std::ofstream(path, std::ios::binary) << all;
  return path;
}

void all_cases(bool with_hip, const std::string& library) {
  const How good[] = {{"", "[.export]", "", "[.open]"},
                      {"", "[.export]", "first=1", "[.open]"},  // a device that the opener does not see
                      {"", "[.go]", "ipc=2", "[.nothing]"},
                      {"", "[.go]", "devices=2,ipc=3", "[.apart]"},
                      {"", "[.go]", "", "[.late]"},
                      {"ipc=0", "[.none]", "ipc=0", "[.none]"}};
  for (const How& how : good) {
    INFO(how.opener << ' ' << how.exports << ' ' << how.opens);
    CHECK(both(how, with_hip, library));
  }
  char directory[] = "/tmp/gpu_ipc.XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  const std::string old = without(library, with_hip ? "hipIpc" : "cuIpc", directory);
  CHECK(both({"", "[.old]", "", "[.old]"}, with_hip, old, library.substr(0, library.rfind('/'))));
  unlink(old.c_str());
  rmdir(directory);
}

}  // namespace

TEST_CASE("memory of another process, CUDA") { all_cases(false, FAKEGPU_CUDA); }

#ifdef FAKEGPU_HIP
TEST_CASE("memory of another process, HIP") { all_cases(true, FAKEGPU_HIP); }
#endif
