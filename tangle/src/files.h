// The few things the tool asks of a file system.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tangle {

/// Whole contents, or nothing when the file cannot be read. With `follow` false a symbolic link is not read.
std::optional<std::string> read_file(const std::string& path, bool follow = true);

/// Whether the file, no symbolic link, holds exactly `text`.
bool file_holds(const std::string& path, std::string_view text);

/// Writes a file that is new or nobody reads yet. Returns what went wrong, or an empty string.
std::string write_file(const std::string& path, std::string_view text);

/// Writes beside the target and renames. Returns what went wrong, or an empty string.
std::string write_file_atomic(const std::string& path, std::string_view text);

/// The name beside `path` under which it is made before it is renamed; what a killed run may leave behind.
std::string temporary_name(const std::string& path);
bool is_leftover(std::string_view name);

/// The files in a folder whose names end with `ending`, in name order, without it. A folder that is not there holds none.
std::vector<std::string> stems_in(const std::string& folder, std::string_view ending);

/// Creates the folder and its parents. Returns what went wrong, or an empty string.
std::string make_folders(const std::string& path);

}  // namespace tangle
