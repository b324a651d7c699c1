// Sixteen rows of 1,024 tokens, heads of 64.

#include "labs/gpu/attention_backward_bench.inl"

int main(int argc, char** argv) {
  return rose::labs::attention_backward_bench(argc, argv, 16, 1024, 32, 64);
}
