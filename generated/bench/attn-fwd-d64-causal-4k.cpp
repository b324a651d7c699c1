// Four rows of 4,096 tokens, heads of 64.

#include "labs/gpu/attention_bench.inl"

int main(int argc, char** argv) {
  return rose::labs::attention_forward_bench(argc, argv, 4, 4096, 32, 64);
}
