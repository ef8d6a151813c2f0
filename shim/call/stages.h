// SPDX-License-Identifier: Apache-2.0
//
// The order of modules. A module names its stage; what is called before what follows from the lists here, and within
// a stage from the modules' names: never from the order of linking. Constants only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

/// Where a module stands between the program and the MPI library, from the program inwards. Hooks of the way in
/// (`before_init`, `enter`, `before_call`, `activating`, `activated`) and those without a direction (`progress`,
/// `report`) are called in this order, hooks of the way out (`leave`, `after_call`, the ends) in reverse.
enum class Stage : uint8_t {
  kNone,  ///< of no module: a module that names none does not compile
  kStaging,  ///< gives host memory in place of device buffers
  kReduction,  ///< computes reductions itself
  kFault,  ///< damages messages on purpose
  kCopies,  ///< checks the copies between device and host
  kChecksum,  ///< compares what was sent with what came
  kRecord,  ///< records what MPI decides, and decides likewise in another run
  kReplicas,  ///< compares what parts of the job give to MPI
  kSteps,  ///< runs steps of the program twice
  kWatch,  ///< looks and changes nothing: recorder, dumps, whatever comes with no place of its own
  kHang,  ///< watches for hangs
  kCount
};

/// A list of all stages, each once.
struct StageOrder {
  static constexpr size_t kStages = static_cast<size_t>(Stage::kCount) - 1;
  Stage stages[kStages];

  constexpr const Stage* begin() const { return stages; }
  constexpr const Stage* end() const { return stages + kStages; }
  constexpr bool complete() const {
    unsigned seen = 0;
    for (Stage stage : stages) seen |= 1u << static_cast<unsigned>(stage);
    return seen == (1u << static_cast<unsigned>(Stage::kCount)) - 2;
  }
  constexpr bool before(Stage first, Stage second) const {
    for (Stage stage : stages)
      if (stage == first || stage == second) return stage == first && first != second;
    return false;
  }
};

/// The way in; in reverse the way out.
constexpr StageOrder kInward = {{Stage::kStaging, Stage::kReduction, Stage::kFault, Stage::kCopies, Stage::kChecksum,
                                 Stage::kRecord, Stage::kReplicas, Stage::kSteps, Stage::kWatch, Stage::kHang}};
/// Who is asked first to carry out a call in place of the library (`execute_instead`); the first one that does ends the
/// search.
constexpr StageOrder kExecuting = {{Stage::kStaging, Stage::kReduction, Stage::kFault, Stage::kCopies, Stage::kRecord,
                                    Stage::kChecksum, Stage::kReplicas, Stage::kSteps, Stage::kWatch, Stage::kHang}};
/// Who is told first that a request is complete (`completed`).
constexpr StageOrder kCompleting = {{Stage::kReduction, Stage::kStaging, Stage::kFault, Stage::kCopies,
                                     Stage::kChecksum, Stage::kRecord, Stage::kReplicas, Stage::kSteps, Stage::kWatch,
                                     Stage::kHang}};
static_assert(kInward.complete() && kExecuting.complete() && kCompleting.complete());

/// What must be before what, and why. A list that breaks one does not compile.
struct StageRule {
  const StageOrder& order;
  Stage first, second;
  const char* why;
};
constexpr StageRule kStageRules[] = {
    {kInward, Stage::kStaging, Stage::kReduction, "a reduction that starts reads what was copied down"},
    {kInward, Stage::kStaging, Stage::kChecksum, "all others see the buffers that the library is given"},
    {kInward, Stage::kStaging, Stage::kRecord, "as for checksums"},
    {kInward, Stage::kStaging, Stage::kReplicas, "as for checksums"},
    {kInward, Stage::kRecord, Stage::kReplicas, "a recorded value takes its place before it is compared"},
    {kInward, Stage::kFault, Stage::kChecksum, "late damage lands on the way out, when checksums have looked"},
    {kInward, Stage::kChecksum, Stage::kRecord,
     "on the way out MPI's decision is kept before a mismatch can end the job"},
    {kInward, Stage::kChecksum, Stage::kHang,
     "a call is open for who watches while the library may block, not in drains"},
    {kInward, Stage::kRecord, Stage::kHang, "likewise: not while a recording is written or read"},
    {kExecuting, Stage::kStaging, Stage::kReduction, "what staging refuses is not computed"},
    {kExecuting, Stage::kStaging, Stage::kRecord, "staging alone knows its messages; it asks what record decides"},
    {kExecuting, Stage::kReduction, Stage::kChecksum, "checksums only wait in another way"},
    {kExecuting, Stage::kRecord, Stage::kChecksum,
     "record decides what MPI would choose; checksums only wait in another way"},
    {kCompleting, Stage::kReduction, Stage::kStaging,
     "the result is computed in host memory, then copied to the device"},
    {kCompleting, Stage::kStaging, Stage::kChecksum, "the data is in the program's buffer when it is read"},
    {kCompleting, Stage::kStaging, Stage::kRecord, "likewise"},
    {kCompleting, Stage::kStaging, Stage::kReplicas, "likewise"},
};

constexpr bool stages_obey_rules() {
  for (const StageRule& rule : kStageRules)
    if (!rule.order.before(rule.first, rule.second)) return false;
  return true;
}
static_assert(stages_obey_rules());

/// Stages whose module keeps a word of its own beside each pending request (Event::cookies); a new one goes to the end.
constexpr Stage kStagesWithWord[] = {Stage::kChecksum, Stage::kRecord, Stage::kReduction, Stage::kStaging,
                                     Stage::kHang};
constexpr unsigned kRequestWords = sizeof(kStagesWithWord) / sizeof(Stage);

/// Which of the words is that of the stage's module; kRequestWords: it has none.
constexpr unsigned request_word(Stage stage) {
  unsigned word = 0;
  while (word < kRequestWords && kStagesWithWord[word] != stage) ++word;
  return word;
}

}  // namespace resil
