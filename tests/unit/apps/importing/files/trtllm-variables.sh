TP=8
CONFIG=options.yml
DP_ATTENTION=false
if [[ "$TP" == "8" ]]; then
    DP_ATTENTION=true
fi
cat > $CONFIG << EOF
enable_attention_dp: $DP_ATTENTION
EOF
mpirun -n 1 trtllm-serve Qwen/Qwen3-30B-A3B --tp_size=$TP --ep_size=$TP --extra_llm_api_options=$CONFIG &
python3 bench_serving/benchmark_serving.py --dataset-name random --random-input-len 1000 --random-output-len 100 \
  --random-range-ratio 0.8 --num-prompts $((TP * 10)) --max-concurrency $TP --request-rate inf
