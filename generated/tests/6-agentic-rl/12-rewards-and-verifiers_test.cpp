// Tests of the chapter "Rewards and verifiers".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "labs/evidence/values.h"
#include "labs/information/information.h"
#include "labs/rl/desk.h"
#include "labs/rl/estimators.h"
#include "labs/rl/verifier.h"
#include "rose/core/rng.h"

namespace rose::labs {
namespace {

// Errors that know nothing of the action only scale the gradient.
std::vector<double> gradient(const std::vector<double>& p, const std::vector<double>& reward) {
  const double mean = std::inner_product(p.begin(), p.end(), reward.begin(), 0.0);
  std::vector<double> g;
  for (std::size_t a = 0; a < p.size(); ++a) g.push_back(p[a] * (reward[a] - mean));
  return g;  // of the expected reward, in the logits of a softmax
}

TEST(Verdicts, ScaleTheGradientOrTurnIt) {
  const std::vector<double> z = {0.3, -0.2, 0.1}, good = {1, 0, 0};
  const auto p = softmax(z);
  const double s = 0.9, t = 0.8;
  const auto truth = gradient(p, good), seen = gradient(p, {s, 1 - t, 1 - t});
  for (std::size_t a = 0; a < 3; ++a) EXPECT_NEAR(seen[a], (s + t - 1) * truth[a], 1e-15);
  const auto hole = gradient(p, {s, 1.0, 1 - t});  // every wrong answer of kind 1 passes
  EXPECT_LT(truth[1], 0);
  EXPECT_GT(hole[1], 0);

  const auto cost = [&](double rate) {
    const double q = rate * s + (1 - rate) * (1 - t);
    return q * (1 - q) / (std::pow(s + t - 1, 2) * rate * (1 - rate));
  };
  EXPECT_NEAR(cost(0.5), 2.02, 0.005);
  EXPECT_NEAR(cost(0.02), 17.5, 0.05);
}

// What is equal, what is not, and what cannot be told.
std::string box(const std::string& answer) {
  return "so it is \\boxed{" + answer + "}.";
}

TEST(Exact, ComparesNumbersAndNotTexts) {
  for (const char* same : {"3/4", "0.75", "75%", "6/8", "0.750", " 75 %"})
    EXPECT_EQ(grade(box(same), "0.75"), Verdict::pass) << same;
  for (const char* other : {"0.7500001", "-3/4", "3/4 or 1/2", "4/3", "", "7.5", "three quarters"})
    EXPECT_EQ(grade(box(other), "0.75"), Verdict::fail) << other;
  EXPECT_EQ(grade(box("0.333"), "1/3"), Verdict::fail);
  EXPECT_EQ(grade(box("1,250.50"), "2501/2"), Verdict::pass);
  EXPECT_EQ(grade("it is 0.75", "0.75"), Verdict::fail);
  EXPECT_EQ(grade(box("1") + box("2"), "1"), Verdict::fail);  // the last one counts
  EXPECT_EQ(grade("\\boxed{1", "1"), Verdict::fail);
  EXPECT_EQ(grade(box("1"), "about one"), Verdict::unknown);
}

std::string normalised(const std::string& text) {  // as published for questions about facts
  std::string kept;
  for (const char c : text) {
    if (std::ispunct(static_cast<unsigned char>(c)) == 0)
      kept += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  std::istringstream words(kept);
  std::string word, out;
  while (words >> word) {
    if (word != "a" && word != "an" && word != "the") out += word + " ";
  }
  return out;
}

TEST(Exact, ANormaliserForNamesIsNoneForNumbers) {
  EXPECT_EQ(normalised("The Eiffel Tower."), normalised("eiffel tower"));
  EXPECT_EQ(normalised("1.5"), normalised("15"));
  EXPECT_EQ(normalised("-5"), normalised("5"));
  EXPECT_EQ(normalised("3/4"), normalised("34"));
  EXPECT_EQ(normalised("C++"), normalised("C"));
  EXPECT_EQ(normalised("The Who"), normalised("who"));
  EXPECT_EQ(normalised("The A"), "");
}

// Unearned rewards and rejected answers.
TEST(Answers, GuessesAndRejections) {
  write_value("rl-answers", "rejected", 100 * (1 - 0.0802 / 0.1328));
  write_value("rl-answers", "unearned", 0.95 * 0.25 / (0.05 + 0.95 * 0.25));
  EXPECT_NEAR(0.95 * 0.25 / (0.05 + 0.95 * 0.25), 0.826, 5e-4);
  // a judge with equal sensitivity and specificity a: how many of its passes are right?
  const auto right = [](double p, double a) { return p * a / (p * a + (1 - p) * (1 - a)); };
  write_value("rl-answers", "plain", 100 * right(0.1, 0.844));
  write_value("rl-answers", "reasoning", 100 * right(0.1, 0.985));
  EXPECT_GT(right(0.1, 0.985), 2 * right(0.1, 0.844));
}

// Wrong programs among those that pass.
TEST(Tests, LetWrongProgramsPass) {
  core::Rng rng(1);
  for (const int n : {3, 10, 100}) {
    int passed = 0, wrong = 0;
    for (int program = 0; program < 200'000; ++program) {
      const bool right = rng.uniform64() < 0.3;
      const double delta = rng.uniform64();
      if (!right && rng.uniform64() > std::pow(1 - delta, n)) continue;
      ++passed;
      wrong += right ? 0 : 1;
    }
    const double share = (0.7 / (n + 1)) / (0.3 + 0.7 / (n + 1));
    EXPECT_NEAR(static_cast<double>(wrong) / passed, share, 0.01);
    write_value("rl-weak-tests", "wrong-" + std::to_string(n), 100 * share);
  }
  EXPECT_NEAR(std::pow(1 - 0.03, 100), 0.05, 0.005);
}

// What the audits' percentages are percentages of.
TEST(Audits, ShareOfWhat) {
  write_value("rl-audits", "disjoint", 12.47 * (1 - 0.3267 - 0.3108));
  write_value("rl-audits", "nested", 12.47 * (1 - 0.3267) * (1 - 0.3108));
  write_value("rl-audits", "flawed", 27.6 * 0.594);
  write_value("rl-audits", "ceiling", 100 - 27.6 * 0.594);
  EXPECT_GT(12.47 * (1 - 0.3267 - 0.3108), 3.97 + 0.5);
  EXPECT_NEAR(0.276 * 500, 138, 1e-9);
}

// Three holes of a state check.
struct StateTask {
  std::map<int, Order> start;
  std::vector<Call> reference;
  std::string must_say;
};

bool state_check(const StateTask& task, const std::vector<Call>& calls, bool with_log) {
  Desk wanted(task.start, 50), real(task.start, 50);
  std::string read_wanted, read_real;
  for (const Call& c : task.reference) wanted.step(c), read_wanted += c.tool == "look" ? "r" : "";
  for (const Call& c : calls) real.step(c), read_real += c.tool == "look" ? "r" : "";
  std::string said;
  for (const std::string& line : real.said()) said += line + "\n";
  return wanted.canonical() == real.canonical() && said.find(task.must_say) != std::string::npos &&
         (!with_log || read_wanted == read_real);
}

TEST(StateChecks, HaveThreeHoles) {
  const std::map<int, Order> start = {{1, {"lamp", "open"}}, {2, {"chair", "shipped"}}};
  const StateTask cancel = {start, {{"look", 1}, {"cancel", 1}}, ""};
  const StateTask refuse = {start, {{"look", 2}}, ""};  // cannot be cancelled any more
  const StateTask tell = {start, {{"look", 2}}, "shipped"};
  const std::vector<Call> nothing, careful = {{"look", 1}, {"look", 2}, {"cancel", 1}};
  EXPECT_TRUE(state_check(cancel, {{"cancel", 1}}, false));  // another way is accepted
  EXPECT_FALSE(state_check(cancel, nothing, false));
  EXPECT_TRUE(state_check(refuse, nothing, false));  // the first hole
  const Call dump = {"say", 0, "1 lamp open cancelled, 2 chair shipped refunded"};
  EXPECT_TRUE(state_check(tell, {dump}, false));  // the second
  EXPECT_TRUE(state_check(cancel, careful, false));
  EXPECT_FALSE(state_check(cancel, careful, true));  // the third: looking is punished
}

// Sums, uniform groups, and rewards that are normalised one by one.
TEST(SeveralRewards, DoWhatTheSumDoesNotShow) {
  const std::array one = {0.0, 1.0}, two = {0.0, 2.0};  // one reward differs; both do
  EXPECT_EQ(standardised(one), standardised(two));
  const auto separate = [](const std::vector<std::vector<double>>& rewards) {
    std::vector<double> sum(rewards[0].size());
    for (const auto& r : rewards) {
      const auto z = standardised(r);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += z[i];
    }
    return sum;
  };
  EXPECT_EQ(separate({{0, 1}, {1, 1}}), (std::vector<double>{-1, 1}));
  EXPECT_EQ(separate({{0, 1}, {0, 1}}), (std::vector<double>{-2, 2}));

  const std::array all_right = {1.000, 1.001, 1.002, 1.001};  // a thousandth for brevity
  EXPECT_NEAR(standardised(all_right)[2], std::sqrt(2.0), 1e-9);
  const std::array mixed = {0.000, 1.001, 1.002, 0.001};
  const auto a = standardised(mixed);
  EXPECT_NEAR(a[2] - a[1], 0.002, 1e-3);  // here it is what it was meant to be
  write_value("rl-several", "uniform", standardised(all_right)[2]);
  write_value("rl-several", "mixed", a[2] - a[1]);
  // how often is a group of eight uniform?
  write_value("rl-several", "at-95", 100 * (std::pow(0.95, 8) + std::pow(0.05, 8)));
}

// The soft edge.
double overlong(double length, double limit, double cache) {
  if (length <= limit - cache) return 0;
  return length <= limit ? (limit - cache - length) / cache : -1;
}

TEST(Length, FallsInAStraightLine) {
  EXPECT_EQ(overlong(16'384, 20'480, 4'096), 0);
  EXPECT_EQ(overlong(18'432, 20'480, 4'096), -0.5);
  EXPECT_EQ(overlong(20'480, 20'480, 4'096), -1);
  EXPECT_EQ(overlong(20'481, 20'480, 4'096), -1);
  // leaving the cut failures out of a group raises the mean that the others are compared with
  const std::vector<double> whole = {1, 0, 0, 0}, rest = {1, 0};
  EXPECT_NEAR(leave_one_out(whole)[1], -1.0 / 3, 1e-12);
  EXPECT_NEAR(leave_one_out(rest)[1], -1, 1e-12);
}

// A panel of judges that agree in their errors.
TEST(Judges, ThatAgreeInTheirErrorsAreOneJudge) {
  core::Rng rng(2);
  for (const double rho : {0.0, 0.6}) {
    for (const int m : {1, 5, 20}) {
      Running mean;
      for (int trial = 0; trial < 20'000; ++trial) {
        const double shared = std::sqrt(rho) * double{rng.normal()};
        double sum = 0;
        for (int j = 0; j < m; ++j) sum += shared + std::sqrt(1 - rho) * double{rng.normal()};
        mean.add(sum / m);
      }
      const double expected = rho + (1 - rho) / m;
      EXPECT_NEAR(mean.variance(), expected, 0.05 * expected + 0.003);
      write_value("rl-panel", (rho > 0 ? "like-" : "other-") + std::to_string(m), expected);
    }
  }
}

}  // namespace
}  // namespace rose::labs
