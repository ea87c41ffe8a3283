#!/bin/sh
# Make environments in which benchmarks/peer.py runs OpenNMT-py, Eole and Joey NMT:
#     benchmarks/peers.sh [FOLDER]        # .peers by default; Python 3.11 or later
# All have the same torch; of the toolkits' requirements only what their models, training and search
# import. An environment that is complete stays as it is.
set -eu
folder=${1:-.peers}

make_environment() {
    name=$1 toolkit=$2
    shift 2
    if [ "$(cat "$folder/$name/complete" 2>/dev/null)" = "$toolkit $*" ]; then
        echo "$folder/$name: is complete"
        return
    fi
    echo "$folder/$name: installing torch and $toolkit"
    "${PYTHON:-python3}" -m venv --clear "$folder/$name"
    "$folder/$name/bin/pip" install --quiet torch==2.13.0
    "$folder/$name/bin/pip" install --quiet --no-deps "$toolkit" "$@"
    echo "$toolkit $*" > "$folder/$name/complete"
}

make_environment opennmt OpenNMT-py==3.5.1 configargparse==1.9.0 numpy==2.4.6 pyonmttok==1.38.1 \
    pyyaml==6.0.4 regex==2026.11.19 six==1.17.0
make_environment eole eole==0.6.4 annotated-types==0.8.0 configargparse==1.9.0 numpy==2.4.6 \
    pydantic==2.14.4 pydantic-core==2.50.5 pyonmttok==1.38.1 pyyaml==6.0.4 regex==2026.11.19 \
    safetensors==0.8.0 six==1.17.0 typing-inspection==0.4.5
make_environment joey joeynmt==2.3.0 importlib-metadata==10.2.0 lazy-importer==0.1.0 \
    numpy==2.4.6 packaging==26.4 pyyaml==6.0.4 tqdm==4.70.1
