// The transformer's operations and their vector-Jacobian products, in double.

#pragma once

#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

namespace rose::labs {

/// Row-major arrays; shapes are in the comments. T is double, or Var to be differentiated by a tape.
template <class T>
using Array = std::vector<T>;
using Doubles = Array<double>;

// Multiply by a weight, and go back.

/// x [m, k], w [n, k], b [n] -> y [m, n].
template <class T>
Array<T> linear(const Array<T>& x, const Array<T>& w, const Array<T>& b, std::size_t m,
                std::size_t n, std::size_t k) {
  Array<T> y(m * n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      T sum = b.empty() ? T(0.0) : b[j];
      for (std::size_t l = 0; l < k; ++l) sum += x[i * k + l] * w[j * k + l];
      y[i * n + j] = sum;
    }
  }
  return y;
}

struct LinearGradients {
  Doubles x, w, b;
};

inline LinearGradients linear_vjp(const Doubles& x, const Doubles& w, const Doubles& y_bar,
                                  std::size_t m, std::size_t n, std::size_t k) {
  LinearGradients out{Doubles(m * k), Doubles(n * k), Doubles(n)};
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      const double g = y_bar[i * n + j];
      out.b[j] += g;
      for (std::size_t l = 0; l < k; ++l) {
        out.x[i * k + l] += g * w[j * k + l];
        out.w[j * k + l] += g * x[i * k + l];
      }
    }
  }
  return out;
}

// Look up rows, and give each row back the sum of its uses.

/// ids [t], table [v, c] -> y [t, c].
template <class T>
Array<T> embedding(std::span<const int> ids, const Array<T>& table, std::size_t c) {
  Array<T> y;
  for (const int id : ids) {
    for (std::size_t j = 0; j < c; ++j) y.push_back(table[static_cast<std::size_t>(id) * c + j]);
  }
  return y;
}

inline Doubles embedding_vjp(std::span<const int> ids, const Doubles& y_bar, std::size_t v,
                             std::size_t c) {
  Doubles table(v * c);
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const auto row = static_cast<std::size_t>(ids[t]);
    for (std::size_t j = 0; j < c; ++j) table[row * c + j] += y_bar[t * c + j];
  }
  return table;
}

// Activate, and go back.

/// silu(gate) * up, elementwise.
template <class T>
Array<T> silu_multiply(const Array<T>& gate, const Array<T>& up) {
  using std::exp;
  Array<T> y;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    y.push_back(gate[i] / (T(1.0) + exp(-gate[i])) * up[i]);
  }
  return y;
}

inline std::pair<Doubles, Doubles> silu_multiply_vjp(const Doubles& gate, const Doubles& up,
                                                     const Doubles& y_bar) {
  Doubles gate_bar, up_bar;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double s = 1.0 / (1.0 + std::exp(-gate[i]));
    gate_bar.push_back(y_bar[i] * up[i] * s * (1.0 + gate[i] * (1.0 - s)));
    up_bar.push_back(y_bar[i] * gate[i] * s);
  }
  return {gate_bar, up_bar};
}

// Weigh by the normal distribution, exactly or by tanh.

/// x Phi(x), or GPT-2's approximation of it.
template <class T>
Array<T> gelu(const Array<T>& x, bool approximate) {
  using std::erf;
  using std::tanh;
  const double c = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
  Array<T> y;
  for (const T& v : x) {
    const T inner =
        approximate ? tanh(c * (v + 0.044715 * v * v * v)) : erf(v * (0.5 * std::numbers::sqrt2));
    y.push_back(0.5 * v * (1.0 + inner));
  }
  return y;
}

inline Doubles gelu_vjp(const Doubles& x, const Doubles& y_bar, bool approximate) {
  const double c = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  Doubles out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = x[i];
    double slope = 0.0;
    if (approximate) {
      const double t = std::tanh(c * (v + 0.044715 * v * v * v));
      slope = 0.5 * (1.0 + t) + 0.5 * v * (1.0 - t * t) * c * (1.0 + 0.134145 * v * v);
    } else {
      slope = 0.5 * (1.0 + std::erf(v * 0.5 * std::numbers::sqrt2)) +
              v * std::exp(-0.5 * v * v) * 0.5 * c;  // the density's constant is c / 2
    }
    out.push_back(y_bar[i] * slope);
  }
  return out;
}

// Normalise rows, and go back.

/// x [m, c] -> y [m, c]: RMSNorm, or LayerNorm (without its bias) when `center`.
template <class T>
Array<T> norm(const Array<T>& x, const Array<T>& w, std::size_t m, double epsilon, bool center) {
  using std::sqrt;
  const std::size_t c = w.size();
  const auto n = static_cast<double>(c);
  Array<T> y(m * c);
  for (std::size_t i = 0; i < m; ++i) {
    T mean = 0.0, square = 0.0;
    if (center) {
      for (std::size_t j = 0; j < c; ++j) mean += x[i * c + j] / n;
    }
    for (std::size_t j = 0; j < c; ++j) square += (x[i * c + j] - mean) * (x[i * c + j] - mean) / n;
    const T r = 1.0 / sqrt(square + epsilon);
    for (std::size_t j = 0; j < c; ++j) y[i * c + j] = w[j] * (r * (x[i * c + j] - mean));
  }
  return y;
}

struct NormGradients {
  Doubles x, w, b;
};

// Remove the component along the normalised row, and for LayerNorm the mean.
inline NormGradients norm_vjp(const Doubles& x, const Doubles& w, const Doubles& y_bar,
                              std::size_t m, double epsilon, bool center) {
  const std::size_t c = w.size();
  const auto n = static_cast<double>(c);
  NormGradients out{Doubles(m * c), Doubles(c), Doubles(c)};
  for (std::size_t i = 0; i < m; ++i) {
    double mean = 0.0, square = 0.0, g_mean = 0.0, g_hat = 0.0;
    if (center) {
      for (std::size_t j = 0; j < c; ++j) mean += x[i * c + j] / n;
    }
    for (std::size_t j = 0; j < c; ++j) square += (x[i * c + j] - mean) * (x[i * c + j] - mean) / n;
    const double r = 1.0 / std::sqrt(square + epsilon);
    for (std::size_t j = 0; j < c; ++j) {
      const double hat = r * (x[i * c + j] - mean), g = y_bar[i * c + j] * w[j];
      out.w[j] += y_bar[i * c + j] * hat;
      out.b[j] += y_bar[i * c + j];
      g_hat += g * hat / n;
      if (center) g_mean += g / n;
    }
    for (std::size_t j = 0; j < c; ++j) {
      const double hat = r * (x[i * c + j] - mean), g = y_bar[i * c + j] * w[j];
      out.x[i * c + j] = r * (g - g_mean - hat * g_hat);
    }
  }
  return out;
}

// Score rows of logits, and go back.

/// logits [n, v], targets [n] -> losses [n]. Subtracting the maximum, a constant, changes nothing
/// but the size of the exponents.
template <class T>
Array<T> cross_entropy(const Array<T>& logits, std::span<const int> targets, std::size_t v) {
  using std::exp;
  using std::log;
  Array<T> losses;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    T largest = logits[i * v];
    for (std::size_t j = 1; j < v; ++j) {
      if (largest < logits[i * v + j]) largest = logits[i * v + j];
    }
    T sum = 0.0;
    for (std::size_t j = 0; j < v; ++j) sum += exp(logits[i * v + j] - largest);
    losses.push_back(log(sum) + largest - logits[i * v + static_cast<std::size_t>(targets[i])]);
  }
  return losses;
}

inline Doubles cross_entropy_vjp(const Doubles& logits, std::span<const int> targets,
                                 const Doubles& loss_bar, std::size_t v) {
  Doubles out(logits.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    double sum = 0.0;
    for (std::size_t j = 0; j < v; ++j) sum += std::exp(logits[i * v + j]);
    for (std::size_t j = 0; j < v; ++j) {
      const double observed = static_cast<std::size_t>(targets[i]) == j ? 1.0 : 0.0;
      out[i * v + j] = loss_bar[i] * (std::exp(logits[i * v + j]) / sum - observed);
    }
  }
  return out;
}

// Turn pairs of channels by their position; turn back for the adjoint.

/// x [t, d], frequencies [d / 2] -> y [t, d]; direction -1 gives the vector-Jacobian product.
template <class T>
Array<T> rope(const Array<T>& x, std::span<const int> positions, const Doubles& frequencies,
              double direction = 1.0) {
  const std::size_t half = frequencies.size(), d = 2 * half;
  Array<T> y(x.size());
  for (std::size_t t = 0; t < positions.size(); ++t) {
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = direction * positions[t] * frequencies[i];
      const double c = std::cos(angle), s = std::sin(angle);
      const T a = x[t * d + i], b = x[t * d + half + i];
      y[t * d + i] = c * a - s * b;
      y[t * d + half + i] = s * a + c * b;
    }
  }
  return y;
}

// Attend causally, and go back from one saved number per row.

/// q [t, heads, d], k and v [t, kv_heads, d] -> out [t, heads, d]; one sequence, causal.
template <class T>
Array<T> attention(const Array<T>& q, const Array<T>& k, const Array<T>& v, std::size_t t,
                   std::size_t heads, std::size_t kv_heads, std::size_t d,
                   Doubles* logsumexp = nullptr) {
  using std::exp;
  using std::log;
  const double scale = 1.0 / std::sqrt(static_cast<double>(d));
  Array<T> out(t * heads * d);
  if (logsumexp != nullptr) logsumexp->assign(t * heads, 0.0);
  for (std::size_t i = 0; i < t; ++i) {
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t g = h / (heads / kv_heads);  // the key head of this query head
      const T* query = &q[(i * heads + h) * d];
      Array<T> weight;
      T sum = 0.0;
      for (std::size_t j = 0; j <= i; ++j) {
        T dot = 0.0;
        for (std::size_t e = 0; e < d; ++e) dot += query[e] * k[(j * kv_heads + g) * d + e];
        weight.push_back(exp(scale * dot));  // the inputs of a reference are small: no overflow
        sum += weight.back();
      }
      for (std::size_t j = 0; j <= i; ++j) {
        const T p = weight[j] / sum;
        for (std::size_t e = 0; e < d; ++e)
          out[(i * heads + h) * d + e] += p * v[(j * kv_heads + g) * d + e];
      }
      if constexpr (std::is_same_v<T, double>) {
        if (logsumexp != nullptr) (*logsumexp)[i * heads + h] = std::log(sum);
      }
    }
  }
  return out;
}

struct AttentionGradients {
  Doubles q, k, v;
};

// Rebuild each probability, and share its adjoint out.
inline AttentionGradients attention_vjp(const Doubles& q, const Doubles& k, const Doubles& v,
                                        const Doubles& out, const Doubles& logsumexp,
                                        const Doubles& out_bar, std::size_t t, std::size_t heads,
                                        std::size_t kv_heads, std::size_t d) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(d));
  AttentionGradients bar{Doubles(q.size()), Doubles(k.size()), Doubles(v.size())};
  for (std::size_t i = 0; i < t; ++i) {
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t row = (i * heads + h) * d;
      double delta = 0.0;
      for (std::size_t e = 0; e < d; ++e) delta += out_bar[row + e] * out[row + e];
      for (std::size_t j = 0; j <= i; ++j) {
        const std::size_t key = (j * kv_heads + h / (heads / kv_heads)) * d;
        double dot = 0.0, p_bar = 0.0;
        for (std::size_t e = 0; e < d; ++e) {
          dot += q[row + e] * k[key + e];
          p_bar += out_bar[row + e] * v[key + e];
        }
        const double p = std::exp(scale * dot - logsumexp[i * heads + h]);
        const double s_bar = scale * p * (p_bar - delta);
        for (std::size_t e = 0; e < d; ++e) {
          bar.q[row + e] += s_bar * k[key + e];
          bar.k[key + e] += s_bar * q[row + e];
          bar.v[key + e] += p * out_bar[row + e];
        }
      }
    }
  }
  return bar;
}

}  // namespace rose::labs
