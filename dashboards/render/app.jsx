// Draws a board: Grafana's libraries draw time series, stats, bars, tables, texts and frames of
// panels; what they lack is in drawings.jsx. `draw` is called from outside, with all data.

import React from 'react';
import { createRoot } from 'react-dom/client';
import { HashRouter } from 'react-router-dom';
import {
  ThemeContext,
  createTheme,
  dateTime,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  renderMarkdown,
} from '@grafana/data';
import { initPluginTranslations } from '@grafana/i18n';
import {
  BarGauge,
  BigValue,
  GlobalStyles,
  PanelChrome,
  TimeSeries,
  VizRepeater,
} from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { framesOf } from './frames.js';
import { Gauge, Heatmap, StateTimeline } from './drawings.jsx';

const [CELL, ROW, GAP] = [60, 30, 8];
window.faults = [];
window.addEventListener('error', ({ message }) => window.faults.push(String(message)));

function numbers(panel, frames, theme) {
  return getFieldDisplayValues({
    fieldConfig: panel.fieldConfig,
    reduceOptions: panel.options.reduceOptions,
    replaceVariables: (value) => value,
    theme,
    data: frames,
    sparkline: panel.options.graphMode !== 'none',
    timeZone: 'utc',
  });
}

function Inside({ panel, frames, span, width, height, theme }) {
  const common = { frames, panel, span, width, height, theme };
  const range = { from: dateTime(span.start * 1000), to: dateTime(span.end * 1000) };
  const values = () => numbers(panel, frames, theme);
  switch (panel.type) {
    case 'timeseries':
      return (
        <TimeSeries
          frames={frames} width={width} height={height} timeZone="utc" options={{}}
          timeRange={{ ...range, raw: range }} legend={panel.options.legend}
        />
      );
    case 'stat':
      return (
        <VizRepeater
          source={panel} getValues={values} width={width} height={height} orientation="auto"
          renderCounter={0}
          renderValue={({ value, width: w, height: h, count }) => (
            <BigValue
              value={value.display} sparkline={value.sparkline} width={w} height={h} theme={theme}
              count={count} colorMode={panel.options.colorMode} graphMode={panel.options.graphMode}
              justifyMode="auto" textMode={panel.options.textMode ?? 'auto'}
            />
          )}
        />
      );
    case 'bargauge':
      return (
        <VizRepeater
          source={panel} getValues={values} width={width} height={height} renderCounter={0}
          orientation={panel.options.orientation} minVizHeight={16} itemSpacing={8}
          getAlignmentFactors={getDisplayValueAlignmentFactors}
          renderValue={({ value, width: w, height: h, alignmentFactors }) => (
            <BarGauge
              value={value.display} field={value.field} width={w} height={h} theme={theme}
              display={value.view?.getFieldDisplayProcessor(value.colIndex)} showUnfilled
              orientation={panel.options.orientation} displayMode={panel.options.displayMode}
              namePlacement="auto" valueDisplayMode="color" alignmentFactors={alignmentFactors}
            />
          )}
        />
      );
    case 'table':
      return (
        <TableNG
          data={frames[0]} width={width} height={height} cellHeight={panel.options.cellHeight}
          fieldConfig={panel.fieldConfig} enableVirtualization={false} disableKeyboardEvents
        />
      );
    case 'gauge':
      return <Gauge shown={values()[0]} {...common} />;
    case 'state-timeline':
      return <StateTimeline {...common} />;
    case 'heatmap':
      return <Heatmap {...common} />;
    default:
      return <span>{`${panel.type} is not drawn here`}</span>;
  }
}

class Guard extends React.Component {
  state = { error: null };

  static getDerivedStateFromError(error) {
    return { error };
  }

  render() {
    if (!this.state.error) return this.props.children;
    window.faults.push(`${this.props.title}: ${this.state.error}`);
    return <pre>{String(this.state.error)}</pre>;
  }
}

function Panel({ panel, answers, span, theme }) {
  const { x, y, w, h } = panel.gridPos;
  const [width, height] = [w * CELL - GAP, h * ROW - GAP];
  const place = { position: 'absolute', left: x * CELL, top: y * ROW, width, height };
  if (panel.type === 'row') {
    return <h2 style={{ ...place, fontSize: 16, margin: 0, lineHeight: `${height}px` }}>{panel.title}</h2>;
  }
  if (panel.type === 'text') {
    const html = { __html: renderMarkdown(panel.options.content) };
    return <div style={place} className="markdown-html" dangerouslySetInnerHTML={html} />;
  }
  const frames = framesOf(panel, answers, theme);
  const empty = !frames.some(({ length }) => length > 0);
  return (
    <div style={place}>
      <PanelChrome title={panel.title} width={width} height={height} padding={panel.type === 'table' ? 'none' : 'md'}>
        {(innerWidth, innerHeight) => (
          <Guard title={panel.title}>
            {empty ? (
              <div style={{ color: theme.colors.text.secondary, textAlign: 'center', paddingTop: innerHeight / 2 - 10 }}>
                {panel.fieldConfig?.defaults?.noValue || 'No data'}
              </div>
            ) : (
              <Inside panel={panel} frames={frames} span={span} width={innerWidth} height={innerHeight} theme={theme} />
            )}
          </Guard>
        )}
      </PanelChrome>
    </div>
  );
}

function Board({ board, answers, span, theme }) {
  const bottom = Math.max(...board.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  const look = {
    background: theme.colors.background.canvas,
    color: theme.colors.text.primary,
    fontFamily: theme.typography.fontFamily,
    position: 'relative',
    width: 24 * CELL + GAP,
    height: bottom * ROW + 44,
    padding: GAP,
    boxSizing: 'content-box',
    colorScheme: theme.isDark ? 'dark' : 'light',
  };
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <style>{'*, ::before, ::after { box-sizing: border-box; }'}</style>
      <HashRouter>
        <div id="board" style={look}>
          <h1 style={{ fontSize: 20, margin: '4px 0 0' }}>{board.title}</h1>
          <div style={{ position: 'absolute', left: GAP, top: 44 }}>
            {board.panels.map((panel) => (
              <Panel
                key={panel.id} panel={panel} answers={answers[panel.id] ?? []} span={span}
                theme={theme}
              />
            ))}
          </div>
        </div>
      </HashRouter>
    </ThemeContext.Provider>
  );
}

window.draw = async (board, answers, span, mode) => {
  await initPluginTranslations('grafana-ui').catch(() => {});
  const theme = createTheme({ colors: { mode } });
  createRoot(document.getElementById('root')).render(
    <Board board={board} answers={answers} span={span} theme={theme} />
  );
};
