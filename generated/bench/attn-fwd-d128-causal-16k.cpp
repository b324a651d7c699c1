// One row of 16,384 tokens, heads of 128.

#include "labs/gpu/attention_bench.inl"

int main(int argc, char** argv) {
  return rose::labs::attention_forward_bench(argc, argv, 1, 16384, 16, 128);
}
