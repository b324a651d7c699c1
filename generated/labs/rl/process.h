// Decision processes small enough to be counted.

#pragma once

#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "labs/information/information.h"
#include "rose/core/rng.h"

namespace rose::labs {

// What may happen, and what the agent sees of it.

/// One thing that may follow an action in a hidden state.
struct Event {
  double probability;
  std::size_t next;         ///< the hidden state it leads to
  std::size_t observation;  ///< what the agent sees of it
  double reward;
  bool last = false;  ///< the episode ends here
};

/// A partially observed decision process.
struct Process {
  std::vector<double> start;  ///< probability of each hidden state at the beginning
  std::size_t actions;
  std::size_t horizon;  ///< decisions after which an episode is cut off
  std::function<std::vector<Event>(std::size_t state, std::size_t action)> step;
};

/// What the agent has seen: action, observation, action, observation, and so on.
using History = std::vector<std::size_t>;

// List every trajectory, with the probability of what the agent did not choose.

/// A decision as a policy sees it: in which situation it chose which action, and what it got.
struct Decision {
  std::size_t situation, action;
  double reward;
};

struct Trajectory {
  double environment;  ///< the product of the probabilities that are not the policy's
  std::vector<Decision> steps;
};

struct Tree {
  std::size_t actions = 0;
  std::vector<Trajectory> trajectories;
  std::vector<History> situations;  ///< what the policy knows in each
};

using View = std::function<History(const History&)>;

inline Tree enumerate(
    const Process& process, const View& view = [](const History& h) { return h; }) {
  Tree tree{process.actions, {}, {}};
  std::map<History, std::size_t> index;
  const auto walk = [&](auto&& self, const Trajectory& path, const History& history,
                        std::size_t state) -> void {
    const auto [place, fresh] = index.try_emplace(view(history), index.size());
    if (fresh) tree.situations.push_back(place->first);
    const std::size_t situation = place->second;
    for (std::size_t a = 0; a < process.actions; ++a) {
      for (const Event& e : process.step(state, a)) {
        Trajectory longer = path;
        longer.environment *= e.probability;
        longer.steps.push_back({situation, a, e.reward});
        if (e.last || longer.steps.size() == process.horizon) {
          tree.trajectories.push_back(std::move(longer));
          continue;
        }
        History seen = history;
        seen.insert(seen.end(), {a, e.observation});
        self(self, longer, seen, e.next);
      }
    }
  };
  for (std::size_t s = 0; s < process.start.size(); ++s) {
    if (process.start[s] > 0) walk(walk, {process.start[s], {}}, {}, s);
  }
  return tree;
}

// A policy as a table of logits.
class Policy {
 public:
  explicit Policy(const Tree& tree)
      : actions_(tree.actions), logits_(tree.situations.size() * tree.actions) {}

  std::span<double> logits() { return logits_; }  ///< [situations, actions]
  std::span<const double> logits() const { return logits_; }

  void randomise(core::Rng& rng, double scale) {
    for (double& z : logits_) z += scale * rng.normal();
  }
  double log_probability(std::size_t situation, std::size_t action) const {
    const auto row = std::span(logits_).subspan(situation * actions_, actions_);
    return row[action] - log_sum_exp(row);
  }
  double probability(std::size_t situation, std::size_t action) const {
    return std::exp(log_probability(situation, action));
  }
  double log_probability(const Trajectory& path) const {
    double sum = 0;
    for (const Decision& d : path.steps) sum += log_probability(d.situation, d.action);
    return sum;
  }
  /// The trajectory law: the world's factors times the policy's.
  double probability(const Trajectory& path) const {
    return path.environment * std::exp(log_probability(path));
  }
  /// Adds weight times the score, the gradient of log_probability(d) in the logits.
  void add_score(const Decision& d, double weight, std::span<double> gradient) const {
    for (std::size_t i = 0; i < actions_; ++i) {
      gradient[d.situation * actions_ + i] +=
          weight * ((i == d.action ? 1.0 : 0.0) - probability(d.situation, i));
    }
  }

 private:
  std::size_t actions_;
  std::vector<double> logits_;
};

// Exact means and variances of whatever one trajectory yields.
using Estimator = std::function<std::vector<double>(const Trajectory&)>;

struct Moments {
  std::vector<double> mean;
  double variance = 0;  ///< summed over the components
};

inline Moments moments(const Tree& tree, const Policy& policy, const Estimator& estimator) {
  Moments m;
  double squares = 0;
  for (const Trajectory& path : tree.trajectories) {
    const double p = policy.probability(path);
    const std::vector<double> x = estimator(path);
    m.mean.resize(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      m.mean[i] += p * x[i];
      squares += p * x[i] * x[i];
    }
  }
  m.variance = squares;
  for (const double mean : m.mean) m.variance -= mean * mean;
  return m;
}

/// The discounted sum of the rewards from each decision on.
inline std::vector<double> returns(const Trajectory& path, double gamma) {
  std::vector<double> g(path.steps.size());
  double sum = 0;
  for (std::size_t t = g.size(); t-- > 0;) g[t] = sum = path.steps[t].reward + gamma * sum;
  return g;
}

inline double objective(const Tree& tree, const Policy& policy, double gamma = 1) {
  const auto first = [&](const Trajectory& path) { return std::vector{returns(path, gamma)[0]}; };
  return moments(tree, policy, first).mean[0];
}

/// The gradient of any function of the policy in its logits, by central differences.
inline std::vector<double> differentiate(Policy policy,
                                         const std::function<double(const Policy&)>& f) {
  constexpr double h = 1e-5;
  std::vector<double> g;
  for (double& z : policy.logits()) {
    const double kept = z;
    z = kept + h;
    const double up = f(policy);
    z = kept - h;
    g.push_back((up - f(policy)) / (2 * h));
    z = kept;
  }
  return g;
}

// Values of situations and of actions in them.
struct Values {
  std::vector<double> v, q;  // [situations], [situations, actions]
};

/// Conditional means of the return, straight from the definition.
inline Values values(const Tree& tree, const Policy& policy, double gamma) {
  std::vector<double> mass(policy.logits().size());
  Values x{std::vector<double>(tree.situations.size()), mass};
  for (const Trajectory& path : tree.trajectories) {
    const double p = policy.probability(path);
    const auto g = returns(path, gamma);
    for (std::size_t t = 0; t < g.size(); ++t) {
      const std::size_t cell = path.steps[t].situation * tree.actions + path.steps[t].action;
      mass[cell] += p;
      x.q[cell] += p * g[t];
    }
  }
  for (std::size_t cell = 0; cell < mass.size(); ++cell) {
    x.q[cell] /= mass[cell];
    const std::size_t s = cell / tree.actions;
    x.v[s] += policy.probability(s, cell % tree.actions) * x.q[cell];
  }
  return x;
}

}  // namespace rose::labs
