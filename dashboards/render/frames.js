// Answers of Prometheus made into Grafana's data frames, as its data source does it.

import {
  FieldConfigOptionsRegistry,
  FieldType,
  applyFieldOverrides,
  cacheFieldDisplayNames,
  sortDataFrame,
  standardTransformers,
  standardTransformersRegistry,
  toDataFrame,
  transformDataFrame,
} from '@grafana/data';

// Some have two names there.
for (const transformation of new Map(
  Object.values(standardTransformers).map((one) => [one.id, one])
).values()) {
  standardTransformersRegistry.register({
    id: transformation.id,
    name: transformation.name,
    transformation,
    editor: null,
  });
}

// What Grafana's panels fill in where a dashboard says nothing.
const LINES = {
  axisBorderShow: false,
  axisCenteredZero: false,
  axisColorMode: 'text',
  axisLabel: '',
  axisPlacement: 'auto',
  barAlignment: 0,
  drawStyle: 'line',
  fillOpacity: 0,
  gradientMode: 'none',
  hideFrom: { legend: false, tooltip: false, viz: false },
  lineInterpolation: 'linear',
  lineWidth: 1,
  pointSize: 5,
  scaleDistribution: { type: 'linear' },
  showPoints: 'auto',
  spanNulls: false,
  stacking: { group: 'A', mode: 'none' },
  thresholdsStyle: { mode: 'off' },
};

function course(series, answer) {
  return toDataFrame({
    refId: answer.ref,
    fields: [
      { name: 'Time', type: FieldType.time, values: series.points.map(([at]) => at * 1000) },
      {
        name: 'Value',
        type: FieldType.number,
        values: series.points.map(([, value]) => value),
        labels: series.labels,
        config: { displayNameFromDS: series.name },
      },
    ],
  });
}

function rows(answer, several) {
  const names = [...new Set(answer.series.flatMap(({ labels }) => Object.keys(labels)))].sort();
  const last = answer.series.map(({ points }) => points[points.length - 1]);
  return toDataFrame({
    refId: answer.ref,
    fields: [
      { name: 'Time', type: FieldType.time, values: last.map(([at]) => at * 1000) },
      ...names.map((name) => ({
        name,
        type: FieldType.string,
        values: answer.series.map(({ labels }) => labels[name] ?? ''),
        config: {},
      })),
      {
        name: several ? `Value #${answer.ref}` : 'Value',
        type: FieldType.number,
        values: last.map(([, value]) => value),
        config: {},
      },
    ],
  });
}

function registry(fieldConfig) {
  const found = new FieldConfigOptionsRegistry();
  const known = ['unit', 'decimals', 'min', 'max', 'thresholds', 'mappings', 'displayName',
    'noValue', 'color', 'links'];
  const custom = new Set(Object.keys(fieldConfig.defaults.custom ?? {}));
  for (const { properties } of fieldConfig.overrides) {
    for (const { id } of properties) {
      if (id.startsWith('custom.')) custom.add(id.slice(7));
    }
  }
  const item = (id, path, isCustom) => ({
    id, path, isCustom, name: id, editor: null, override: null,
    process: (value) => value,
    shouldApply: () => true,
  });
  known.forEach((id) => found.register(item(id, id, false)));
  custom.forEach((id) => found.register(item(`custom.${id}`, id, true)));
  return found;
}

function transformed(panel, frames) {
  let result = frames;
  if (panel.transformations?.length) {
    transformDataFrame(panel.transformations, frames).subscribe((after) => (result = after));
  }
  return result;
}

// Frames of a panel with its field configuration applied.
export function framesOf(panel, answers, theme) {
  const table = panel.type === 'table';
  const several = answers.length > 1;
  const raw = answers.flatMap((answer) =>
    table ? rows(answer, several) : answer.series.map((series) => course(series, answer))
  );
  const told = panel.fieldConfig ?? { defaults: {}, overrides: [] };
  const fieldConfig = { defaults: { ...told.defaults }, overrides: told.overrides ?? [] };
  if (panel.type === 'timeseries') {
    fieldConfig.defaults.custom = { ...LINES, ...told.defaults.custom };
    fieldConfig.defaults.color ??= { mode: 'palette-classic' };
  }
  const frames = applyFieldOverrides({
    data: transformed(panel, raw),
    fieldConfig,
    replaceVariables: (value) => value,
    theme,
    timeZone: 'utc',
    fieldConfigRegistry: registry(fieldConfig),
  });
  cacheFieldDisplayNames(frames);
  const [by] = panel.options?.sortBy ?? [];
  if (!table || !by) return frames;
  return frames.map((frame) => {
    const at = frame.fields.findIndex(({ state }) => state.displayName === by.displayName);
    return at < 0 ? frame : sortDataFrame(frame, at, by.desc);
  });
}
