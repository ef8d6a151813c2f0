// SPDX-License-Identifier: Apache-2.0
//
// The main function of all unit tests, and what is behind check.h, compiled once. Catch takes no signals: what crashes
// is told with its stack by the sanitizers under which each unit runs, and tests of dumps have handlers of their own.
#define CATCH_CONFIG_MAIN
#define CATCH_CONFIG_NO_POSIX_SIGNALS
#include "check.h"

#include <ostream>
#include <string>

namespace unit {
namespace {

std::string shown(const Operand& operand) {
  switch (operand.kind) {
    case Operand::Kind::kSigned: return Catch::Detail::stringify(operand.number);
    case Operand::Kind::kUnsigned: return Catch::Detail::stringify(operand.natural);
    case Operand::Kind::kReal: return Catch::Detail::stringify(operand.real);
    case Operand::Kind::kBool: return operand.natural ? "true" : "false";
    case Operand::Kind::kCharacters: return Catch::Detail::stringify(operand.characters);
    case Operand::Kind::kText: return Catch::Detail::stringify(std::string(operand.text));
    case Operand::Kind::kPointer: return Catch::Detail::stringify(const_cast<const void*>(operand.pointer));
    case Operand::Kind::kApprox:
      return Catch::Detail::stringify(
          *static_cast<const Catch::Detail::Approx*>(const_cast<const void*>(operand.pointer)));
    case Operand::Kind::kOther: break;
  }
  return "{?}";
}

class Expression final : public Catch::ITransientExpression {
 public:
  explicit Expression(const Outcome& outcome)
      : Catch::ITransientExpression(outcome.comparison != nullptr, outcome.holds), outcome_(outcome) {}

  void streamReconstructedExpression(std::ostream& out) const override {
    if (outcome_.comparison) {
      Catch::formatReconstructedExpression(out, shown(outcome_.left), outcome_.comparison, shown(outcome_.right));
    } else {
      out << shown(outcome_.left);
    }
  }

 private:
  const Outcome& outcome_;
};

}  // namespace

void judge(const Outcome& outcome, const char* name, const char* text, const char* file, int line, int how) {
  Catch::AssertionHandler handler(Catch::StringRef(name), Catch::SourceLineInfo(file, static_cast<std::size_t>(line)),
                                  Catch::StringRef(text), static_cast<Catch::ResultDisposition::Flags>(how));
  handler.handleExpr(Expression(outcome));
  handler.complete();
}

}  // namespace unit
