import { Radio, SegmentedControl } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import type { Condition } from '~/api/types'
import { adviceText } from '~/parts/adviceText'
import { useConditionWords } from '~/parts/conditionWords'
import classes from './dialog.module.css'
import { watchpointsTexts } from './texts'

const TARGETS = ['tensor', 'weight', 'gradient', 'activation'] as const

/** The choice of the kind of tensor, then of the condition; unavailable conditions say why. */
export function ConditionChoice(props: {
  conditions: Condition[]
  chosen: Condition
  /** The condition of an existing watchpoint cannot be changed. */
  isFixed: boolean
  choose: (condition: Condition) => void
}) {
  const { conditions, chosen, isFixed, choose } = props
  const { t } = useTranslation(watchpointsTexts)
  const words = useConditionWords()
  const ofTarget = (target: string) =>
    conditions
      .filter((condition) => condition.target === target)
      .sort((a, b) => Number(b.available) - Number(a.available))
  if (isFixed) {
    return (
      <div className={classes['conditions']}>
        <div className={classes['label']}>{t('condition')}</div>
        <div>
          <b>{words.label(chosen.id)}</b> <abbr>{chosen.abbreviation}</abbr>
        </div>
      </div>
    )
  }
  return (
    <div className={classes['conditions']}>
      <div className={classes['label']} id="watchpoint-category">
        {t('category')}
      </div>
      <SegmentedControl
        aria-labelledby="watchpoint-category"
        orientation="vertical"
        fullWidth
        data={TARGETS.map((value) => ({ value, label: t(`categories.${value}`) }))}
        value={chosen.target}
        onChange={(target) => {
          const first = ofTarget(target)[0]
          if (first) choose(first)
        }}
      />
      <Radio.Group
        label={t('condition')}
        value={chosen.id}
        onChange={(id) => {
          const next = conditions.find((condition) => condition.id === id)
          if (next) choose(next)
        }}
      >
        <div className={classes['choices']}>
          {ofTarget(chosen.target).map((condition) => (
            <Radio
              key={condition.id}
              size="xs"
              value={condition.id}
              disabled={!condition.available}
              label={
                <>
                  {words.label(condition.id)} <abbr>{condition.abbreviation}</abbr>
                </>
              }
              description={
                condition.available
                  ? undefined
                  : t('unavailable', { why: adviceText(condition.unavailable_because) })
              }
            />
          ))}
        </div>
      </Radio.Group>
    </div>
  )
}
