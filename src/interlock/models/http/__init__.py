"""Requests to the APIs of model providers, and what their refusals say."""

from interlock.models.http.api_refusal import ApiRefusal
from interlock.models.http.http_model import HttpModel
from interlock.models.http.model_api import AnswerStream, ModelApi
from interlock.models.http.model_endpoint import ModelEndpoint
from interlock.models.http.model_limits import ModelLimits
from interlock.models.http.model_requests import ModelRequests, RequestFormat

__all__ = [
    "AnswerStream",
    "ApiRefusal",
    "HttpModel",
    "ModelApi",
    "ModelEndpoint",
    "ModelLimits",
    "ModelRequests",
    "RequestFormat",
]
