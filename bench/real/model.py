"""A model for Triton's Python backend that serves each request for a fixed time and answers its input."""

import json
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.seconds = float(parameters["service_ms"]["string_value"]) / 1000.0

    def execute(self, requests):
        answers = []
        for request in requests:
            time.sleep(self.seconds)
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        return answers
