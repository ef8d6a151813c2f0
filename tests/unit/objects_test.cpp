// SPDX-License-Identifier: Apache-2.0
//
// The table of objects that were made and not freed: against a map, when handles come again, when it grows and is full.
#include "shim/tables/live_objects.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "fake_backend.h"

namespace {

using namespace resil;
using Key = std::pair<MpiObject, uint64_t>;

/// Objects as the table has them, and how many found no place.
std::map<Key, LiveObject> contents(uint64_t* beyond = nullptr) {
  std::map<Key, LiveObject> found;
  const uint64_t lost = objects_visit(
      [](const LiveObject& object, void* to) {
        REQUIRE(static_cast<std::map<Key, LiveObject>*>(to)->emplace(Key{object.kind, object.handle}, object).second);
      },
      &found);
  if (beyond != nullptr) *beyond = lost;
  return found;
}

/// A free by the program: some wrapper of MPI_Type_free and the like.
LiveObject take(MpiObject kind, uint64_t handle) {
  const ObjectCall call(CallId::kMPI_Type_free, 0x7000);
  return object_freed(call, kind, handle, reinterpret_cast<uint64_t>(&take), 0x7000);
}

TEST_CASE("objects: what is made and not freed is there, and nothing else") {
  fake::Core core;
  objects_forget();
  std::mt19937 random(7);
  std::map<Key, uint32_t> model;
  const MpiObject kinds[] = {MpiObject::kDatatype, MpiObject::kGroup, MpiObject::kCommunicator, MpiObject::kCommKeyval};
  for (int step = 0; step < 60000; ++step) {
    const MpiObject kind = kinds[random() % 4];
    const uint64_t handle = 0x84000000 + random() % 3000 * (step < 30000 ? 1 : 16);
    const Key key{kind, handle};
    if (random() % 5 < 3) {
      object_made_at(kind, handle, CallId::kMPI_Type_dup, handle * 3);
      model[key] = is_shared_by_handle(kind) ? model[key] + 1 : 1;
    } else {
      const LiveObject was = take(kind, handle);
      CHECK((was.kind != MpiObject::kNone) == (model.count(key) != 0));
      if (was.kind == MpiObject::kNone) continue;
      CHECK((was.handle == handle && was.kind == kind && was.site == handle * 3 && was.count == 1));
      if (random() % 16 == 0) {
        object_kept(was);  // MPI refused
      } else if (--model[key] == 0) {
        model.erase(key);
      }
    }
  }
  const auto found = contents();
  REQUIRE(found.size() == model.size());
  for (const auto& [key, object] : found) CHECK((model.count(key) == 1 && model[key] == object.count));
  for (const auto& [key, count] : model)
    for (uint32_t i = 0; i < count; ++i) CHECK(take(key.first, key.second).kind == key.first);
  CHECK(contents().empty());
}

TEST_CASE("objects: what finds no place is counted") {
  fake::Core core;
  objects_forget();
  for (uint64_t i = 0; i < kMostObjects + 100; ++i)
    object_made_at(MpiObject::kInfo, 0x9c000000 + i, CallId::kMPI_Info_create, 1);
  uint64_t beyond = 0;
  CHECK(contents(&beyond).size() == kMostObjects);
  CHECK(beyond == 100);
  objects_forget();
  CHECK(contents(&beyond).empty());
  CHECK(beyond == 0);
}

TEST_CASE("objects: a buffer goes with its communicator") {
  fake::Core core;
  objects_forget();
  object_made_at(MpiObject::kBuffer, 5, CallId::kMPI_Comm_attach_buffer, 1);
  object_made_at(MpiObject::kBuffer, 0, CallId::kMPI_Buffer_attach, 1);
  object_made_at(MpiObject::kCommunicator, 5, CallId::kMPI_Comm_dup, 1);
  take(MpiObject::kCommunicator, 5);
  CHECK(contents().size() == 1);
  CHECK(take(MpiObject::kBuffer, 0).call == static_cast<uint16_t>(CallId::kMPI_Buffer_attach));
}

TEST_CASE("objects: another tool's call of the same function is not a second object") {
  fake::Core core;
  const ObjectCall outer(CallId::kMPI_Type_dup, 0x7000);
  CHECK(!outer.nested);
  {
    const ObjectCall tool(CallId::kMPI_Type_dup, 0x6000), callback(CallId::kMPI_Type_free, 0x5000);
    CHECK(tool.nested);
    CHECK(!callback.nested);
  }
  const ObjectCall again(CallId::kMPI_Type_dup, 0x6000);
  CHECK(again.nested);
  const ObjectCall after_longjmp(CallId::kMPI_Type_dup, 0x7100);  // left without its end
  CHECK(!after_longjmp.nested);
}

TEST_CASE("objects: rows say what is made and freed") {
  for (unsigned i = 0; i < kCallCount; ++i) {
    const CallInfo& info = kCallInfo[i];
    const std::string name = info.name;
    INFO(name);
    CHECK((info.makes != MpiObject::kNone && info.frees != MpiObject::kNone) == false);
    CHECK((info.makes == MpiObject::kCommunicator) == info.has(kCallCreatesComm));
    CHECK((info.frees == MpiObject::kCommunicator) == (info.comm == CommCall::kFree));
    CHECK((info.makes == MpiObject::kWindow) == (info.window == WindowCall::kCreate));
    CHECK((info.frees == MpiObject::kWindow) == (info.window == WindowCall::kFree));
    CHECK((info.makes == MpiObject::kFile) == (info.file == FileCall::kOpen));
    CHECK((info.frees == MpiObject::kFile) == (info.file == FileCall::kClose));
    const bool by_name = name.find("_free") != std::string::npos && name != "MPI_Request_free" &&
                         name != "MPI_Free_mem" && name.rfind("MPI_T_", 0) != 0;
    if (by_name) CHECK(info.frees != MpiObject::kNone);
    if (name.rfind("MPI_Type_create_", 0) == 0 && name.find("f90") == std::string::npos)
      CHECK(info.makes != MpiObject::kNone);
    if (name.rfind("MPI_Type_create_f90", 0) == 0) CHECK(info.makes == MpiObject::kNone);
  }
  CHECK(call_info(CallId::kMPI_Type_commit).makes == MpiObject::kNone);
  CHECK(call_info(CallId::kMPI_Comm_get_parent).makes == MpiObject::kNone);
  CHECK(call_info(CallId::kMPI_Type_get_contents).makes == MpiObject::kDatatype);
}

}  // namespace
