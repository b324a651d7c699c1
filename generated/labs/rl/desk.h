// A desk at which orders are cancelled and refunded.

#pragma once

#include <map>
#include <string>
#include <vector>

namespace rose::labs {

// What is on the desk, what can be done, what comes back.
struct Order {
  std::string item, status;  // "open", "shipped", "cancelled" or "refunded"
};

struct Call {
  std::string tool;  // "look", "cancel", "refund", "say" or "done"
  int order = 0;
  std::string text = {};
};

struct Answer {
  std::string observation;
  bool terminated = false;  ///< the agent said that it is done
  bool truncated = false;   ///< the limit of calls was reached: not an end, a cut
};

// Do what a call asks, if the rules allow it.
class Desk {
 public:
  Desk(std::map<int, Order> orders, int limit) : orders_(std::move(orders)), left_(limit) {}

  Answer step(const Call& call) {
    if (left_ == 0) return {"the desk is closed", false, true};
    --left_;
    const bool cut = left_ == 0;
    if (call.tool == "done") return {"", true, false};
    if (call.tool == "say") {
      said_.push_back(call.text);
      return {"", false, cut};
    }
    const auto found = orders_.find(call.order);
    if (found == orders_.end()) return {"no such order", false, cut};
    std::string& status = found->second.status;
    if (call.tool == "look") return {found->second.item + ", " + status, false, cut};
    if (call.tool == "cancel" && status == "open")
      status = "cancelled";
    else if (call.tool == "refund" && status == "shipped")
      status = "refunded";
    else
      return {"not possible", false, cut};
    return {"ok", false, cut};
  }

  /// The state in one spelling, whatever the order of the calls that led to it.
  std::string canonical() const {
    std::string text;
    for (const auto& [number, order] : orders_)
      text += std::to_string(number) + " " + order.item + " " + order.status + "\n";
    return text;
  }
  const std::vector<std::string>& said() const { return said_; }

 private:
  std::map<int, Order> orders_;  // sorted: the order of enumeration is part of the behaviour
  std::vector<std::string> said_;
  int left_;
};

}  // namespace rose::labs
