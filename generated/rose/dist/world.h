// Read who is who from the environment.

#pragma once

#include <cstdint>
#include <string>

namespace rose::dist {

/// One process among all.
struct World {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  ///< on this machine
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 29500;
};

/// From RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT; without RANK from what Open MPI, MPICH or
/// a Slurm step set. Nothing set: alone. Throws core::Error (invalid_argument) naming the variable.
World world_from_environment();

}  // namespace rose::dist
