// SPDX-License-Identifier: Apache-2.0
//
// The stand-in's memory of other processes: two of them, which fork before either has a driver.

#include <fcntl.h>
#include <sys/socket.h>

#include <cstring>

#include "check.h"
#include "tests/unit/fakegpu_cuda.h"

namespace {

/// The two ends of a conversation: fixed-size pieces.
struct Line {
  int file;
  template <class T>
  void tell(const T& what) const {
    NEED(write(file, &what, sizeof(what)) == static_cast<ssize_t>(sizeof(what)));
  }
  template <class T>
  T hear() const {
    T what;
    NEED(read(file, &what, sizeof(what)) == static_cast<ssize_t>(sizeof(what)));
    return what;
  }
};

/// Runs `other` in a process of its own, with what it is told; its exit status is asked for.
template <class One, class Other>
void pair(One one, Other other) {
  int ends[2];
  NEED(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    alarm(20);
    other(Line{ends[1]});
    _exit(0);
  }
  close(ends[1]);
  one(Line{ends[0]});
  int status = 0;
  NEED(waitpid(pid, &status, 0) == pid && status == 0);
}

CUipcMemHandle handle_of(CUdeviceptr memory) {
  CUipcMemHandle handle;
  NEED(cuIpcGetMemHandle(&handle, memory) == CUDA_SUCCESS);
  return handle;
}

CUresult open(CUdeviceptr* to, const CUipcMemHandle& handle) { return cuIpcOpenMemHandle_v2(to, handle, 1); }

}  // namespace

TEST_CASE("memory of another process is written by copies, and touched by no host") {
  CHECK(child("peer=4", [] {
          pair(
              [](const Line& line) {
                begin();
                device_memory(100);  // what is exported does not begin with a page
                const CUdeviceptr memory = device_memory(kBytes);
                NEED(cuMemsetD8_v2(memory, 3, kBytes) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
                line.tell(handle_of(memory + 99));  // that of the allocation
                line.hear<int>();
                const auto* seen = static_cast<const char*>(fakegpu_host_view(reinterpret_cast<void*>(memory)));
                NEED(seen[0] == 3 && seen[999] == 3 && seen[1000] == 7 && seen[kBytes - 1] == 7);
                NEED(cuMemFree_v2(memory) == CUDA_SUCCESS);
                line.tell(1);
                line.hear<int>();
              },
              [](const Line& line) {
                begin();
                const auto handle = line.hear<CUipcMemHandle>();
                const CUdeviceptr own = device_memory(kBytes);
                NEED(cuMemsetD8_v2(own, 7, kBytes) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
                CUdeviceptr memory = 0, again = 0;
                NEED(open(&memory, handle) == CUDA_SUCCESS && open(&again, handle) == CUDA_SUCCESS && again == memory);
                char back = 0;
                NEED(cuMemcpyDtoH_v2(&back, memory + kBytes - 1, 1) == CUDA_SUCCESS && back == 3);
                NEED(cuMemcpyDtoH_v2(&back, memory + kBytes, 1) == CUDA_ERROR_INVALID_VALUE);
                const double start = fakegpu_now();
                const uint64_t before = fakegpu_count("peer");
                const CUstream lane = stream();
                NEED(cuMemcpyDtoDAsync_v2(memory + 1000, own + 1000, kBytes - 1000, lane) == CUDA_SUCCESS);
                NEED(cuStreamSynchronize(lane) == CUDA_SUCCESS && fakegpu_count("peer") == before + 1);
                NEED(fakegpu_now() - start >= (kBytes - 1000) / 4e9);
                const pid_t toucher = fork();
                if (toucher == 0) {
                  dup2(::open("/dev/null", O_WRONLY), 2);
                  *reinterpret_cast<volatile char*>(memory) = 1;
                  _exit(0);
                }
                int status = 0;
                NEED(waitpid(toucher, &status, 0) == toucher && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
                NEED(cuMemFree_v2(memory) == CUDA_ERROR_INVALID_VALUE);
                NEED(cuIpcCloseMemHandle(memory) == CUDA_SUCCESS);
                NEED(cuMemcpyDtoH_v2(&back, memory, 1) == CUDA_SUCCESS);  // it was opened twice
                NEED(cuIpcCloseMemHandle(memory) == CUDA_SUCCESS);
                NEED(cuIpcCloseMemHandle(memory) == CUDA_ERROR_INVALID_VALUE);
                line.tell(1);
                line.hear<int>();
                NEED(open(&memory, handle) == CUDA_ERROR_INVALID_HANDLE);  // freed since
                line.tell(1);
              });
        }) == 0);
}

TEST_CASE("what cannot be exported or opened") {
  CHECK(child("", [] {
          begin();
          CUipcMemHandle handle = {};
          CUdeviceptr memory = device_memory(kBytes), pool = 0, shared = 0;
          NEED(cuMemAllocAsync(&pool, 64, nullptr) == CUDA_SUCCESS &&
               cuMemAllocManaged(&shared, 64, 1) == CUDA_SUCCESS);
          for (const CUdeviceptr bad : {pool, shared, reinterpret_cast<CUdeviceptr>(pinned(64)), CUdeviceptr{0}})
            NEED(cuIpcGetMemHandle(&handle, bad) == CUDA_ERROR_INVALID_VALUE);
          NEED(cuIpcOpenMemHandle_v2(&shared, handle, 0) == CUDA_ERROR_INVALID_VALUE);
          NEED(open(&shared, handle) == CUDA_ERROR_INVALID_HANDLE);
          NEED(open(&shared, handle_of(memory)) == CUDA_ERROR_INVALID_CONTEXT);  // one's own
          NEED(cuMemFree_v2(memory) == CUDA_SUCCESS);
          NEED(cuIpcGetMemHandle(&handle, memory) == CUDA_ERROR_INVALID_VALUE);
        }) == 0);
  CHECK(child("ipc=0", [] {
          begin();
          CUipcMemHandle handle;
          NEED(cuIpcGetMemHandle(&handle, device_memory(kBytes)) == CUDA_ERROR_NOT_SUPPORTED);
        }) == 0);
  const struct {
    const char* settings;
    int result;
  } refusals[] = {{"ipc=2", CUDA_ERROR_MAP_FAILED},
                  {"ipc=3,first=1", CUDA_ERROR_PEER_ACCESS_UNSUPPORTED},
                  {"ipc=3", CUDA_SUCCESS},
                  {"first=1", CUDA_SUCCESS}};
  for (const auto& [settings, result] : refusals) {
    INFO(settings);
    CHECK(child("", [&, settings = settings, result = result] {
            pair(
                [](const Line& line) {
                  begin();
                  line.tell(handle_of(device_memory(kBytes)));
                  line.hear<int>();
                },
                [=](const Line& line) {
                  setenv("FAKEGPU", settings, 1);
                  begin();
                  CUdeviceptr memory = 0;
                  NEED(open(&memory, line.hear<CUipcMemHandle>()) == result);
                  line.tell(1);
                });
          }) == 0);
  }
}

TEST_CASE("an exporter that is gone, and one that frees what is open") {
  CHECK(child("", [] {
          pair(
              [](const Line& line) {
                begin();
                CUdeviceptr memory = 0;
                const auto handle = line.hear<CUipcMemHandle>();
                char end;
                NEED(read(line.file, &end, 1) == 0);
                int status = 0;
                NEED(waitpid(-1, &status, 0) > 0 && status == 0);  // else it may still be there for a moment
                NEED(open(&memory, handle) == CUDA_ERROR_INVALID_HANDLE);
                _exit(0);
              },
              [](const Line& line) {
                begin();
                line.tell(handle_of(device_memory(kBytes)));
              });
        }) == 0);
  std::string said;
  CHECK(child(
            "",
            [] {
              pair(
                  [](const Line& line) {
                    begin();
                    const CUdeviceptr memory = device_memory(kBytes);
                    line.tell(handle_of(memory));
                    line.hear<int>();
                    cuMemFree_v2(memory);
                  },
                  [](const Line& line) {
                    begin();
                    CUdeviceptr memory = 0;
                    NEED(open(&memory, line.hear<CUipcMemHandle>()) == CUDA_SUCCESS);
                    line.tell(1);
                    char end;
                    NEED(read(line.file, &end, 1) == 0);
                  });
            },
            &said) == 1000 + SIGABRT);
  CHECK(said.find("fakegpu: 100000 bytes of device memory freed that another process has open") == 0);
}
