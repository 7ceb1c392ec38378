import { IconAlertTriangle, IconEye, IconPlayerPlay } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { AddedLegend } from '~/panels/compare/AddedMark'
import css from './graph.module.css'
import { graphTexts } from './texts'

/** The legend of boxes and wires. */
export function Legend({ isTruncated }: { isTruncated: boolean }) {
  const { t } = useTranslation(graphTexts)
  return (
    <div className={css['legend']}>
      <AddedLegend />
      <details data-testid="graph-legend">
        <summary>{t('legend')}</summary>
        {isTruncated && <div className={css['wide']}>{t('truncated')}</div>}
        <div className={css['entries']}>
          <Sample kind="scope" text={t('scope')} />
          <Sample kind="cluster" text={t('cluster')} />
          <Sample kind="operator" text={t('operator')} />
          <Sample kind="operator" role="activation" text={t('activation')} />
          <Sample kind="operator" role="gradient" text={t('gradient')} />
          <Sample kind="parameter" text={t('parameter')} />
          <Sample kind="constant" text={t('constant')} />
          <Sample kind="operator" isDynamic text={t('dynamic')} />
          <div className={css['entry']}>
            <svg width="26" height="10" aria-hidden>
              <path className={css['wire']} data-kind="data" d="M0 5H26" />
            </svg>
            {t('dataEdge')}
          </div>
          <div className={css['entry']}>
            <svg width="26" height="10" aria-hidden>
              <path className={css['wire']} data-kind="control" d="M0 5H26" />
            </svg>
            {t('controlEdge')}
          </div>
          <div className={css['entry']}>
            <span className={css['swatch']} data-mark="hit">
              <IconAlertTriangle size={12} />
            </span>
            {t('hit')}
          </div>
          <div className={css['entry']}>
            <span className={css['swatch']} data-mark="watched">
              <IconEye size={12} />
            </span>
            {t('watchedAll')}
          </div>
          <div className={css['entry']}>
            <span className={css['swatch']} data-mark="current">
              <IconPlayerPlay size={11} fill="currentColor" />
            </span>
            {t('runHere')}
          </div>
        </div>
        <div className={css['wide']}>{t('hint')}</div>
      </details>
    </div>
  )
}

function Sample(props: { kind: string; text: string; role?: string; isDynamic?: boolean }) {
  return (
    <div className={css['entry']}>
      <span
        className={css['sample']}
        data-kind={props.kind}
        data-role={props.role}
        data-dynamic={props.isDynamic ?? undefined}
      />
      {props.text}
    </div>
  )
}
