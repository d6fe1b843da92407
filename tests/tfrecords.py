"""TFRecord files written by hand: framing from its description, examples by Google's own protocol buffers."""

import gzip
import struct

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = _crc_table()


def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(records):
    result = b""
    for data in records:
        length = struct.pack("<Q", len(data))
        result += length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))
    return result


def write(path, records, packed=False):
    raw = framed(records)
    path.write_bytes(gzip.compress(raw) if packed else raw)
    return path


def _messages():
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, (field, kind, label, of) in enumerate(fields, start=1):
            made.field.add(name=field, number=number, type=kind, label=label, type_name=of)
        return made

    F = descriptor_pb2.FieldDescriptorProto
    one, many = F.LABEL_OPTIONAL, F.LABEL_REPEATED
    message("BytesList", ("value", F.TYPE_BYTES, many, None))
    message("FloatList", ("value", F.TYPE_FLOAT, many, None))
    message("Int64List", ("value", F.TYPE_INT64, many, None))
    lists = [(n, F.TYPE_MESSAGE, one, f".t.{n}") for n in ("BytesList", "FloatList", "Int64List")]
    message("Feature", *lists)
    features = message("Features", ("feature", F.TYPE_MESSAGE, many, ".t.Features.FeatureEntry"))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=F.TYPE_MESSAGE, label=one, type_name=".t.Feature")
    message("Example", ("features", F.TYPE_MESSAGE, one, ".t.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


Example = _messages()


def example(**features):
    """Lists of bytes, arrays of floats and arrays of whole numbers, serialised; a / in a name is written __."""
    made = Example()
    for name, values in features.items():
        feature = made.features.feature[name.replace("__", "/")]
        if isinstance(values, list):
            feature.BytesList.value.extend(values)
        elif np.asarray(values).dtype.kind == "f":
            feature.FloatList.value.extend(np.asarray(values).ravel().tolist())
        else:
            feature.Int64List.value.extend(np.asarray(values).ravel().tolist())
    return made.SerializeToString()
