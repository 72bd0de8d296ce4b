// Panels whose plugins live in Grafana's server and not in its libraries, drawn by hand in its
// colours: gauge, heatmap, state timeline. They show the data, not what Grafana's look like.

import React from 'react';
import { getDisplayProcessor } from '@grafana/data';

const LEFT = 150;

function Clock({ span, width, left, y, theme }) {
  const marks = [0, 0.25, 0.5, 0.75, 1];
  return marks.map((share) => {
    const at = new Date((span.start + share * (span.end - span.start)) * 1000);
    return (
      <text
        key={share} x={left + share * (width - left - 8)} y={y} fontSize={11}
        fill={theme.colors.text.secondary}
        textAnchor={share === 0 ? 'start' : share === 1 ? 'end' : 'middle'}
      >
        {at.toISOString().slice(11, 19)}
      </text>
    );
  });
}

export function Gauge({ shown, width, height, theme }) {
  const size = Math.min(width, (height - 4) * 1.6);
  const radius = size / 2 - 14;
  const [cx, cy] = [width / 2, Math.min(height - 8, radius + 14 + (height - radius) / 4)];
  const { display, field } = shown;
  const { min = 0, max = 1 } = field;
  const share = Math.max(0, Math.min(1, (display.numeric - min) / (max - min)));
  const arc = (part) => {
    const angle = Math.PI * (1 - part);
    return `M ${cx - radius} ${cy} A ${radius} ${radius} 0 0 1
      ${cx + radius * Math.cos(angle)} ${cy - radius * Math.sin(angle)}`;
  };
  return (
    <svg width={width} height={height}>
      <path d={arc(1)} fill="none" strokeWidth={14} stroke={theme.colors.background.secondary} />
      {Number.isFinite(share) && (
        <path d={arc(share)} fill="none" strokeWidth={14} stroke={display.color} />
      )}
      <text
        x={cx} y={cy - 6} textAnchor="middle" fontSize={Math.min(32, radius / 1.8)}
        fill={theme.colors.text.primary}
      >
        {`${display.prefix ?? ''}${display.text}${display.suffix ?? ''}`}
      </text>
    </svg>
  );
}

export function StateTimeline({ frames, span, width, height, theme }) {
  const tall = (height - 20) / Math.max(1, frames.length);
  const x = (at) => LEFT + ((at / 1000 - span.start) / (span.end - span.start)) * (width - LEFT - 8);
  return (
    <svg width={width} height={height}>
      {frames.map((frame, row) => {
        const [time, value] = frame.fields;
        const display = value.display ?? getDisplayProcessor({ field: value, theme });
        const name = value.config.displayName ?? value.config.displayNameFromDS ?? value.name;
        const parts = [];
        for (let i = 0; i < value.values.length; i++) {
          const now = value.values[i];
          if (now === null) continue;
          const last = parts[parts.length - 1];
          const until = time.values[i + 1] ?? time.values[i] + span.step * 1000;
          if (last && last.value === now && last.until >= time.values[i]) last.until = until;
          else parts.push({ value: now, from: time.values[i], until });
        }
        return (
          <g key={row}>
            <text
              x={LEFT - 6} y={row * tall + tall / 2 + 4} textAnchor="end" fontSize={11}
              fill={theme.colors.text.primary}
            >
              {name.length > 24 ? `${name.slice(0, 23)}…` : name}
            </text>
            {parts.map((part, i) => {
              const shown = display(part.value);
              const wide = x(part.until) - x(part.from);
              return (
                <g key={i}>
                  <rect
                    x={x(part.from)} y={row * tall + 1} width={Math.max(1, wide)}
                    height={Math.max(2, tall - 2)} fill={shown.color}
                  />
                  {tall > 13 && wide > shown.text.length * 7 && (
                    <text
                      x={x(part.from) + 4} y={row * tall + tall / 2 + 4} fontSize={11}
                      fill={theme.colors.getContrastText(shown.color)}
                    >
                      {shown.text}
                    </text>
                  )}
                </g>
              );
            })}
          </g>
        );
      })}
      <Clock span={span} width={width} left={LEFT} y={height - 4} theme={theme} />
    </svg>
  );
}

// Cividis, which panels ask for, between its ends.
const CIVIDIS = ['#00224e', '#123570', '#3b496c', '#575d6d', '#707173', '#8a8678', '#a59c74',
  '#c3b369', '#e1cc55', '#fee838'];

function cividis(share) {
  const at = Math.max(0, Math.min(1, share)) * (CIVIDIS.length - 1);
  const [low, high] = [CIVIDIS[Math.floor(at)], CIVIDIS[Math.ceil(at)]];
  const mix = (n) => {
    const [a, b] = [low, high].map((color) => parseInt(color.slice(1 + 2 * n, 3 + 2 * n), 16));
    return Math.round(a + (b - a) * (at % 1));
  };
  return `rgb(${mix(0)}, ${mix(1)}, ${mix(2)})`;
}

function bound(text) {
  return text === '+Inf' ? Infinity : parseFloat(text);
}

export function Heatmap({ frames, panel, span, width, height, theme }) {
  const buckets = panel.targets[0].format === 'heatmap';
  const named = frames.map((frame) => {
    const field = frame.fields[1];
    const name = field.config.displayNameFromDS ?? field.name;
    return { name, times: frame.fields[0].values, values: [...field.values] };
  });
  if (buckets) {
    named.sort((a, b) => bound(a.name) - bound(b.name));
    for (let row = named.length - 1; row > 0; row--) {
      named[row].values = named[row].values.map((v, i) => v - (named[row - 1].values[i] ?? 0));
    }
    while (named.length && !named[named.length - 1].values.some((v) => v > 0)) named.pop();
    named.reverse();
  }
  const all = named.flatMap(({ values }) => values).filter(Number.isFinite);
  const { min, max } = panel.options?.color ?? {};
  const [low, high] = [min ?? Math.min(...all), max ?? Math.max(...all)];
  const left = 90;
  const [tall, wide] = [(height - 20) / Math.max(1, named.length), width - left - 8];
  return (
    <svg width={width} height={height}>
      {named.map(({ name, times, values }, row) => (
        <g key={name}>
          <text
            x={left - 6} y={row * tall + tall / 2 + 4} textAnchor="end" fontSize={11}
            fill={theme.colors.text.primary}
          >
            {tall > 9 || row % 3 === 0 ? name : ''}
          </text>
          {values.map((value, i) => {
            if (!Number.isFinite(value) || (buckets && value <= 0)) return null;
            const x = left + ((times[i] / 1000 - span.start) / (span.end - span.start)) * wide;
            const cell = (span.step / (span.end - span.start)) * wide;
            const share = (value - low) / (high - low || 1);
            return (
              <rect
                key={i} x={x} y={row * tall} width={cell + 0.5} height={tall - 1}
                fill={cividis(buckets ? Math.sqrt(share) : share)}
              />
            );
          })}
        </g>
      ))}
      <Clock span={span} width={width} left={left} y={height - 4} theme={theme} />
    </svg>
  );
}
